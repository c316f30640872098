#include "tessera/checkpoint/convert/tensor_pass.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/protobuf_wire.h"
#include "tessera/checkpoint/format/element_hash.h"

namespace tessera::checkpoint {
namespace {

using Holder = TensorPass::Holder;

void require_checksum(const SourceFile& file, const SourceTensor& tensor, uint32_t crc) {
  if (crc == *tensor.crc32c) return;
  throw InvalidArgument("{}: the tensor {} {} at byte {} is damaged: its crc32c is {:08x}, it must be {:08x}",
                        file.path(), quoted_name(tensor.name), tensor.type_text(),
                        tensor.pieces.empty() ? 0 : tensor.pieces[0].offset, crc, *tensor.crc32c);
}

// The smallest region around both.
Region around(const Region& a, const Region& b) {
  Region region = a;
  for (int dim = 0; dim < a.ndim(); ++dim) {
    const int64_t end = std::max(a.offset[dim] + a.shape[dim], b.offset[dim] + b.shape[dim]);
    region.offset[dim] = std::min(a.offset[dim], b.offset[dim]);
    region.shape[dim] = end - region.offset[dim];
  }
  return region;
}

const OutputTensor& tensor_of(std::span<const OutputFile> outputs, const Holder& holder) {
  return outputs[holder.output].tensors[holder.tensor];
}

// Splits holders of one name into those that share sources, directly or through others.
std::vector<std::vector<Holder>> connected(std::span<const OutputFile> outputs, const std::vector<Holder>& holders) {
  std::vector<size_t> leader(holders.size());
  std::iota(leader.begin(), leader.end(), size_t{0});
  const auto find = [&](size_t i) {
    while (leader[i] != i) i = leader[i] = leader[leader[i]];
    return i;
  };
  std::unordered_map<const SourceTensor*, size_t> first;
  for (size_t i = 0; i < holders.size(); ++i) {
    for (const auto& part : tensor_of(outputs, holders[i]).sources) {
      const auto it = first.emplace(part.tensor, i).first;
      leader[std::max(find(i), find(it->second))] = std::min(find(i), find(it->second));
    }
  }
  std::map<size_t, std::vector<Holder>> groups;
  for (size_t i = 0; i < holders.size(); ++i) groups[find(i)].push_back(holders[i]);
  std::vector<std::vector<Holder>> result;
  for (auto& [first_of_group, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace

// Replicas of a source may each be needed; together their parts of a piece shall not exceed kPieceBytes by much.
int64_t TensorPass::piece_elements() const {
  const int64_t all = global_.num_elements();
  if (all == 0) return 1;  // an empty text
  int64_t held = 0;
  for (const auto& source : sources_) held += source.part.region.shape.num_elements();
  const int64_t times = std::max<int64_t>(1, (held + all - 1) / all);
  return std::max<int64_t>(1, RegionReader::kPieceBytes / element_bytes_ / times);
}

std::vector<TensorPass::Hashed> TensorPass::run(const SourceFiles& files, RegionReader& reader, Sink sink) const {
  struct Chunk {  // of a source, in the present piece
    Region region;
    std::span<std::byte> bytes;
  };
  std::vector<std::optional<Chunk>> chunks(sources_.size());
  std::vector<std::optional<Region>> needed(sources_.size());
  std::vector<uint32_t> crcs(sources_.size(), 0);
  std::vector<RegionHash> hashes;
  if (!is_text_) {
    for (const auto& target : targets_) hashes.emplace_back(target.region, global_, element_bytes_);
  }
  std::vector<std::byte> read;
  std::vector<std::byte> joined;
  const auto bytes_of = [&](const Region& region) {
    return static_cast<size_t>(region.shape.num_elements() * element_bytes_);
  };

  const auto read_sources = [&](const Region& piece) {
    size_t total = 0;
    for (size_t s = 0; s < sources_.size(); ++s) {
      chunks[s].reset();
      needed[s] = sources_[s].is_verified ? intersection(sources_[s].part.region, piece) : std::nullopt;
    }
    for (const auto& target : targets_) {
      const auto wanted = intersection(target.region, piece);
      if (!wanted) continue;
      for (const size_t s : target.sources) {
        const auto common = intersection(sources_[s].part.region, *wanted);
        if (common) needed[s] = needed[s] ? around(*needed[s], *common) : *common;
      }
    }
    for (const auto& region : needed) total += region ? bytes_of(*region) : 0;
    if (read.size() < total) read.resize(total);
    auto room = std::span(read);
    for (size_t s = 0; s < sources_.size(); ++s) {
      if (!needed[s]) continue;
      chunks[s] = Chunk{*needed[s], room.first(bytes_of(*needed[s]))};
      room = room.subspan(chunks[s]->bytes.size());
      reader.read_region(sources_[s].part, element_bytes_, chunks[s]->region, {chunks[s]->region, chunks[s]->bytes});
      if (sources_[s].is_verified) crcs[s] = crc32c(chunks[s]->bytes, crcs[s]);
    }
  };

  const auto give = [&](size_t t, std::span<const std::byte> bytes) {
    if (!is_text_) hashes[t].add(bytes);
    sink(targets_[t].holders, bytes);
  };

  const auto feed = [&](size_t t, const Region& wanted) {
    const auto& target = targets_[t];
    if (joined.size() < bytes_of(wanted)) joined.resize(bytes_of(wanted));
    const RegionBytes to{wanted, std::span(joined).first(bytes_of(wanted))};
    for (const size_t s : target.sources) {
      const auto common = intersection(sources_[s].part.region, wanted);
      if (!common) continue;
      const RegionBytes from{chunks[s]->region, chunks[s]->bytes};
      if (const auto all = dense_part(from, wanted, element_bytes_); *common == wanted && !all.empty()) {
        return give(t, all);  // it lies there as it is wanted
      }
      copy_region(from, to, *common, element_bytes_);
    }
    give(t, to.bytes);
  };

  for_each_piece(Region::whole(global_), piece_elements(), [&](const Region& piece) {
    read_sources(piece);
    for (size_t t = 0; t < targets_.size(); ++t) {
      if (const auto wanted = intersection(targets_[t].region, piece)) feed(t, *wanted);
    }
  });
  for (size_t s = 0; s < sources_.size(); ++s) {
    const auto& part = sources_[s].part;
    if (sources_[s].is_verified) require_checksum(files.at(part.rank), *part.tensor, crcs[s]);
  }
  if (global_.num_elements() == 0) {  // an empty text has a record
    for (const auto& target : targets_) sink(target.holders, {});
  }
  std::vector<Hashed> result;
  for (size_t t = 0; t < hashes.size(); ++t) result.push_back({targets_[t].holders, hashes[t].sum()});
  return result;
}

TensorPass PassPlanner::make(std::span<const OutputFile> outputs, std::span<const Holder> holders) {
  TensorPass pass;
  const auto& first = tensor_of(outputs, holders[0]);
  const bool is_text = pass.is_text_ = first.like->is_text;  // a text is copied as a row of bytes
  pass.global_ = is_text ? Shape{first.like->size_bytes} : first.global;
  pass.element_bytes_ = is_text ? 1 : static_cast<int64_t>(size_bytes(first.like->dtype));
  std::unordered_map<const SourceTensor*, size_t> index;
  for (const auto& holder : holders) {
    const auto& tensor = tensor_of(outputs, holder);
    TensorPass::Target target{.region = is_text ? Region::whole(pass.global_) : tensor.region, .holders = {holder}};
    for (const auto& part : tensor.sources) {
      const auto [it, is_new] = index.emplace(part.tensor, pass.sources_.size());
      target.sources.push_back(it->second);
      if (!is_new) continue;
      const bool claims = verify_ && part.tensor->crc32c && claimed_.insert(part.tensor).second;
      pass.sources_.push_back({{part.rank, part.tensor, is_text ? Region::whole(pass.global_) : part.region}, claims});
    }
    const auto same = std::find_if(pass.targets_.begin(), pass.targets_.end(), [&](const auto& other) {
      return other.region == target.region && other.sources == target.sources;
    });
    if (same == pass.targets_.end()) {
      pass.targets_.push_back(std::move(target));
    } else {
      same->holders.push_back(holder);
    }
  }
  return pass;
}

std::vector<TensorPass> PassPlanner::plan(std::span<const OutputFile> outputs) {
  std::vector<std::vector<Holder>> by_name;
  std::unordered_map<std::string_view, size_t> index;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto& tensors = outputs[o].tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].sources.empty()) continue;
      const auto [it, is_new] = index.emplace(tensors[t].like->name, by_name.size());
      if (is_new) by_name.emplace_back();
      by_name[it->second].push_back({o, t});
    }
  }
  std::vector<TensorPass> passes;
  for (const auto& holders : by_name) {
    for (const auto& group : connected(outputs, holders)) passes.push_back(make(outputs, group));
  }
  return passes;
}

}  // namespace tessera::checkpoint
