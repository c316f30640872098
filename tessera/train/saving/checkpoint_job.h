// CheckpointJob: one save, as one rank does its part of it. It looks at no model: what it needs was put into it, so
// that a thread can run it while training goes on.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/files/scratch_file.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/comm/communicator.h"
#include "tessera/train/modes/save_form.h"
#include "tessera/train/saving/snapshot.h"

namespace tessera::train {

class CheckpointJob {
 public:
  struct Value {
    checkpoint::HeldValue held;
    std::optional<checkpoint::Region> region;  // what `piece` holds; nullopt: nothing
    TensorView piece;                          // this rank's; without memory where it is streamed
    std::optional<checkpoint::StreamedRegion> streamed = std::nullopt;
    Tensor copy;                  // what `piece` looks at, where that is not the model's own memory
    bool is_row_of_rank = false;  // one row per rank: of one device, it has no first dim
    bool is_spilled = false;      // the model's own memory of it is a file
  };

  SaveForm form = SaveForm::kAlone;
  FileSystem* files = nullptr;
  comm::Communicator* group = nullptr;  // the group of all ranks; nullptr for kAlone
  std::string path;
  std::vector<checkpoint::Entry> append_info;
  checkpoint::CheckpointInfo info;
  checkpoint::Encryption encryption;
  std::vector<Value> values;
  std::optional<ScratchFile> scratch;  // where a spilled value is put together; nullopt: there is none
  std::vector<int> together;           // the ranks that see the directory, ascending
  std::function<void()> before_write;  // may be empty, and so may the next one
  std::function<void()> after_commit;

  // Replaces the pieces that this rank will need by copies in the snapshot's memory, which it begins to make and run()
  // goes on with; those of values that will change first are made first, in the order of `updated`. What is appended is
  // copied at once, and the other pieces are let go. Pieces on a device are copied there, or to the host at once where
  // it has no room.
  void take_snapshot(Snapshot& snapshot, std::span<const TensorView> updated);
  // Takes the memory that take_snapshot() would need.
  void reserve_snapshot(Snapshot& snapshot);
  // Every rank of the group calls it. Returns the path.
  std::string run();

 private:
  // Narrows each piece to what this rank will need of it.
  void keep_needed_pieces();
  void copy_streamed_pieces(Snapshot& snapshot);
  bool is_first_in_directory() const;
  std::vector<checkpoint::HeldValue> held_values() const;
  std::vector<std::optional<checkpoint::Region>> regions_to_write() const;
  std::string save_own_values();
  std::string save_whole();
  std::string save_own_slices();

  Snapshot* snapshot_ = nullptr;
};

}  // namespace tessera::train
