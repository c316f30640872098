// TensorPass: one way through the values of one tensor, from all source files that hold them to all outputs that need
// them. Goes along the global value, row-major, a piece at a time: each source's and each output's part of a piece
// follows its part of the piece before. So each byte is read once, a source's checksum is compared while it is copied,
// and outputs get their content in order. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/convert/region_reader.h"

namespace tessera::checkpoint {

class TensorPass {
 public:
  // A Holder is one tensor of one of several outputs.
  struct Holder {
    size_t output = 0;
    size_t tensor = 0;
  };
  // Called with the holders, all of which have the same content, and its next bytes.
  using Sink = FunctionRef<void(std::span<const Holder>, std::span<const std::byte>)>;

  // The layout-free hash of what some holders have been given.
  struct Hashed {
    std::span<const Holder> holders;
    uint64_t hash = 0;
  };

  // Reads and hands on everything. Returns the hashes, of a text none. Throws InvalidArgument naming file and tensor
  // when a source that it verifies is damaged, IoError when one cannot be read.
  std::vector<Hashed> run(const SourceFiles& files, RegionReader& reader, Sink sink) const;

 private:
  friend class PassPlanner;
  struct Source {
    SourcePart part;
    bool is_verified = false;  // then it is read as a whole, what no output needs too
  };
  struct Target {
    Region region;
    std::vector<size_t> sources;
    std::vector<Holder> holders;
  };
  int64_t piece_elements() const;

  bool is_text_ = false;
  Shape global_;
  int64_t element_bytes_ = 1;
  std::vector<Source> sources_;
  std::vector<Target> targets_;
};

// Makes the passes for groups of outputs, one group after the other.
class PassPlanner {
 public:
  // With `verify`, each source tensor that has a checksum is verified by the first pass that touches it.
  explicit PassPlanner(bool verify) : verify_(verify) {}

  // The passes over all tensors of these outputs, in about their order. Outputs that share no source are in passes of
  // their own. The passes look into `outputs`.
  std::vector<TensorPass> plan(std::span<const OutputFile> outputs);

 private:
  TensorPass make(std::span<const OutputFile> outputs, std::span<const TensorPass::Holder> holders);

  bool verify_;
  std::set<const SourceTensor*> claimed_;
};

}  // namespace tessera::checkpoint
