#include "tessera/checkpoint/convert/tensor_hashes.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/checkpoint/convert/tilings.h"

namespace tessera::checkpoint {

TensorHashes::TensorHashes(const SourceFiles& sources) {
  for (const auto& [rank, file] : sources) {
    for (const auto& tensor : file.tensors()) {
      if (tensor.is_text) continue;
      const Shape& global = tensor.part ? tensor.part->global : tensor.shape;
      add(tensor.name, global, {tensor.part ? tensor.part->region : Region::whole(global), tensor.hash});
    }
  }
}

void TensorHashes::add(const Manifest& manifest) {
  for (const auto& tensor : manifest.tensors) {
    if (tensor.is_text) continue;
    for (const auto& slice : tensor.slices) add(tensor.name, tensor.shape, {{slice.offset, slice.shape}, slice.hash});
  }
}

void TensorHashes::add(const std::string& name, const Shape& global, const Slice& slice) {
  if (slice.region.is_empty()) return;
  auto& known = tensors_.emplace(name, Known{.global = global}).first->second;
  const auto same = std::find_if(known.slices.begin(), known.slices.end(),
                                 [&](const Slice& other) { return other.region == slice.region; });
  if (known.global != global || (same != known.slices.end() && same->hash != slice.hash)) known.is_contradictory = true;
  if (same == known.slices.end()) known.slices.push_back(slice);
}

std::optional<uint64_t> TensorHashes::find(const std::string& name, const Shape& global) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second.is_contradictory || it->second.global != global) return std::nullopt;
  uint64_t sum = 0;
  int64_t covered = 0;
  for (const auto& slice : it->second.slices) {
    if (!slice.hash) return std::nullopt;
    sum += *slice.hash;
    covered += slice.region.shape.num_elements();
  }
  if (covered == global.num_elements()) return sum;
  std::vector<Region> regions;
  for (const auto& slice : it->second.slices) regions.push_back(slice.region);
  std::optional<uint64_t> common;
  for (const auto& tiling : tilings_of(regions, Region::whole(global))) {
    uint64_t own = 0;
    for (const size_t slice : tiling) own += *it->second.slices[slice].hash;
    if (common && *common != own) return std::nullopt;
    common = own;
  }
  return common;
}

void TensorHashes::require_same(const TensorHashes& source, const std::string& where) const {
  for (const auto& [name, known] : tensors_) {
    const auto mine = find(name, known.global);
    const auto expected = source.find(name, known.global);
    if (!mine || !expected || *mine == *expected) continue;
    throw InvalidArgument(
        "{}: {} {} has other values than the source: the hashes of its slices add up to {:016x}, "
        "those of the source's to {:016x}",
        where, quoted_name(name), known.global, *mine, *expected);
  }
}

}  // namespace tessera::checkpoint
