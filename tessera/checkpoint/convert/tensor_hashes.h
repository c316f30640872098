// TensorHashes: the layout-free hashes (element_hash.h) of whole tensors, added up from those of their slices. Two
// checkpoints hold equal values when these are equal, however each is split, and nobody reads a value. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/convert/sources.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/checkpoint/manifest/manifest.h"

namespace tessera::checkpoint {

class TensorHashes {
 public:
  TensorHashes() = default;
  // The hashes of all tensors that the files' manifests describe.
  explicit TensorHashes(const SourceFiles& sources);
  void add(const Manifest& manifest);

  // The tensor's hash; nullopt when its slices do not tile that shape, lack a hash, or are replicas that differ. Stages
  // that share a tensor may each have slices that tile it.
  std::optional<uint64_t> find(const std::string& name, const Shape& global) const;
  // Throws InvalidArgument naming the first tensor whose hash is known here and in `source`, but not the same. `where`
  // is what was made of the source.
  void require_same(const TensorHashes& source, const std::string& where) const;

 private:
  struct Slice {
    Region region;
    std::optional<uint64_t> hash;
  };
  struct Known {
    Shape global;
    std::vector<Slice> slices;  // each region once
    bool is_contradictory = false;
  };
  void add(const std::string& name, const Shape& global, const Slice& slice);

  std::map<std::string, Known> tensors_;
};

}  // namespace tessera::checkpoint
