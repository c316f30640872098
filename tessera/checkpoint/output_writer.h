// OutputWriter: writes the files of a conversion, several at the same time, and compares what they are made of with the
// checksums in the source's manifests. Internal to this folder.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "tessera/base/file_system.h"
#include "tessera/checkpoint/box_reader.h"
#include "tessera/checkpoint/ckpt_file.h"
#include "tessera/checkpoint/conversion.h"

namespace tessera::checkpoint {

class OutputWriter {
 public:
  // All must outlive the writer. With `verify`, source tensors that have a checksum are compared with it. `count` hears
  // of the bytes of values that were written, from any thread.
  OutputWriter(FileSystem& files, const SourceFiles& sources, bool verify, std::function<void(int64_t)> count);

  // Commits `output` to `path` with its manifest, which says that `world_size` files belong together. Any thread; each
  // with a reader of its own. Throws InvalidArgument for damaged sources, IoError when another thread's write failed.
  void write(const OutputFile& output, int64_t world_size, const std::string& path, BoxReader& reader);
  // Hands one tensor of it to `sink`, row-major and in pieces, and compares its sources with their checksums as `write`
  // does. Not for texts.
  void copy(const OutputTensor& tensor, BoxReader& reader, FunctionRef<void(std::span<const std::byte>)> sink);
  // Of a text.
  std::string text_of(const OutputTensor& tensor) const;
  // Makes all threads that write stop soon: one has failed.
  void stop();

 private:
  enum class Verified { kInProgress, kYes };
  Written add(CkptWriter& writer, const OutputTensor& tensor, BoxReader& reader);
  void verify(const OutputTensor& tensor, uint32_t written_crc, BoxReader& reader);
  bool claim(const SourceTensor& tensor);
  void wait_until_verified(const OutputFile& output);
  void require_running() const;

  FileSystem& files_;
  const SourceFiles& sources_;
  const bool verify_;
  const std::function<void(int64_t)> count_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const SourceTensor*, Verified> verified_;
  bool stopped_ = false;
};

}  // namespace tessera::checkpoint
