#include "tessera/checkpoint/convert/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/convert/region_reader.h"
#include "tessera/checkpoint/convert/tensor_hashes.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

// One rank's file by itself is compared as it is, though it may be a part.
SourceFiles open_side(FileSystem& files, const std::string& path, DiffSide& described) {
  auto sources = open_checkpoint(files, path);
  auto& first = sources.begin()->second;
  const bool is_file = first.path() == path && !are_saved_together(sources);
  described = {.paths = paths_of(sources), .is_part = is_file && first.holds_parts()};
  if (described.is_part) first.forget_parts();
  return sources;
}

// One side as whole tensors.
struct Side {
  DiffSide described;
  SourceFiles sources;
  ParameterPlacement placement;
  ParameterPlacement whole;
  Conversion conversion;
  OutputFile output;
  TensorHashes hashes;
  RegionReader reader;

  Side(FileSystem& files, const std::string& path, const std::string& strategy_file)
      : sources(open_side(files, path, described)),
        placement(ParameterPlacement::read(files, strategy_file)),
        conversion(placement, whole, sources, /*check_replicas=*/true),
        output(conversion.output(0)),
        hashes(sources),
        reader(files, sources) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
};

std::string type_text(const OutputTensor& tensor) {
  return tensor.like->is_text ? "str" : Type{tensor.like->dtype, tensor.region.shape}.to_string();
}

void compare_piece(const Type& type, std::span<std::byte> left, std::span<std::byte> right, TensorDifference& result) {
  if (std::memcmp(left.data(), right.data(), left.size()) == 0) return;
  const auto element_bytes = size_bytes(type.dtype);
  const auto values_of = [&](std::span<std::byte> bytes) {
    return Tensor::copy_of(TensorView(bytes.data(), type)).to_doubles();
  };
  const auto a = values_of(left);
  const auto b = values_of(right);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(left.data() + i * element_bytes, right.data() + i * element_bytes, element_bytes) == 0) continue;
    ++result.num_different;
    const double difference = std::abs(a[i] - b[i]);
    if (!std::isnan(difference)) {
      result.largest = std::max(result.largest, difference);
    } else if (std::isnan(a[i]) != std::isnan(b[i])) {
      result.largest = std::numeric_limits<double>::infinity();
    }
  }
}

TensorDifference compare(FileSystem& files, Side& left, const OutputTensor& a, Side& right, const OutputTensor& b) {
  TensorDifference result{.name = a.like->name, .left = type_text(a), .right = type_text(b)};
  if (result.left != result.right) return result;
  if (a.like->is_text) {
    const auto text_of = [&](const Side& side, const OutputTensor& tensor) {
      return read_text(files, side.sources.at(tensor.sources[0].rank), tensor.like->name);
    };
    result.num_elements = 1;
    result.num_different = text_of(left, a) == text_of(right, b) ? 0 : 1;
    return result;
  }
  result.num_elements = a.region.shape.num_elements();
  const auto element_bytes = static_cast<int64_t>(size_bytes(a.like->dtype));
  std::vector<std::byte> mine(RegionReader::kPieceBytes);
  std::vector<std::byte> other(RegionReader::kPieceBytes);
  for_each_piece(a.region, RegionReader::kPieceBytes / element_bytes, [&](const Region& region) {
    const auto size = static_cast<size_t>(region.shape.num_elements() * element_bytes);
    left.reader.read_piece(a, region, std::span(mine).first(size));
    right.reader.read_piece(b, region, std::span(other).first(size));
    compare_piece({a.like->dtype, region.shape}, std::span(mine).first(size), std::span(other).first(size), result);
  });
  return result;
}

bool have_equal_hashes(const Side& left, const OutputTensor& a, const Side& right, const OutputTensor& b) {
  if (a.like->is_text || type_text(a) != type_text(b)) return false;
  if (!(a.region == Region::whole(a.global)) || a.global != b.global) return false;
  const auto hash = left.hashes.find(a.like->name, a.global);
  return hash && hash == right.hashes.find(b.like->name, b.global);
}

// What a manifest says proves nothing of a file that it was not written for. Throws InvalidArgument naming the first
// file, and the tensor in it, that is not as its manifest says.
void require_as_written(FileSystem& files, const SourceFiles& sources) {
  std::set<std::string> verified;  // each with all files that its manifest names
  for (const auto& [rank, file] : sources) {
    const auto path = checkpoint_of_file(files, file.path());
    if (!file.info() || !verified.insert(path).second) continue;
    const auto verification = verify(files, path);
    if (verification.state == Verified::kNo) throw InvalidArgument(verification.problem);
    if (verification.state == Verified::kNoManifest) throw IoError("{}: changed while it was read", path);
  }
}

std::string side_text(const DiffSide& side) {
  return side.is_part ? side.paths.front() + " (one rank's part, as it is)" : files_text(side.paths);
}

bool differs(const TensorDifference& result) { return result.left != result.right || result.num_different > 0; }

}  // namespace

CheckpointDiff diff_checkpoints(FileSystem& files, const std::string& left, const std::string& right,
                                const std::string& left_strategy_file, const std::string& right_strategy_file,
                                bool read_all) {
  Side a(files, left, left_strategy_file);
  Side b(files, right, right_strategy_file);
  if (!read_all) {
    require_as_written(files, a.sources);
    require_as_written(files, b.sources);
  }
  std::unordered_map<std::string, const OutputTensor*> others;
  for (const auto& tensor : b.output.tensors) others.emplace(tensor.like->name, &tensor);
  CheckpointDiff diff{.left = a.described, .right = b.described};
  for (const auto& tensor : a.output.tensors) {
    const auto it = others.find(tensor.like->name);
    if (it == others.end()) {
      diff.differences.push_back({.name = tensor.like->name, .left = type_text(tensor)});
      continue;
    }
    if (!read_all && have_equal_hashes(a, tensor, b, *it->second)) {
      others.erase(it);
      ++diff.num_equal;
      ++diff.num_by_hash;
      continue;
    }
    const auto result = compare(files, a, tensor, b, *it->second);
    others.erase(it);
    if (differs(result)) {
      diff.differences.push_back(result);
    } else {
      ++diff.num_equal;
    }
  }
  for (const auto& tensor : b.output.tensors) {
    if (!others.contains(tensor.like->name)) continue;
    diff.differences.push_back({.name = tensor.like->name, .right = type_text(tensor)});
  }
  return diff;
}

std::string diff_sides(const CheckpointDiff& diff) {
  return fmt::format("comparing {} with {}", side_text(diff.left), side_text(diff.right));
}

std::string diff_table(const CheckpointDiff& diff) {
  std::string text;
  for (const auto& one : diff.differences) {
    if (one.right.empty()) {
      text += fmt::format("- {} {}\n", one.name, one.left);
    } else if (one.left.empty()) {
      text += fmt::format("+ {} {}\n", one.name, one.right);
    } else if (one.left != one.right) {
      text += fmt::format("! {} {} -> {}\n", one.name, one.left, one.right);
    } else {
      text += fmt::format("~ {} {}: {} of {} elements differ, by at most {}\n", one.name, one.left, one.num_different,
                          one.num_elements, shortest(one.largest));
    }
  }
  const auto how = diff.num_by_hash > 0 ? fmt::format(" ({} by their hashes)", diff.num_by_hash) : "";
  return text + fmt::format("{} equal{}, {} different\n", diff.num_equal, how, diff.differences.size());
}

std::string diff_json(const CheckpointDiff& diff) {
  Json json{{"left", diff.left.paths},
            {"right", diff.right.paths},
            {"num_equal", diff.num_equal},
            {"num_by_hash", diff.num_by_hash},
            {"differences", Json::array()}};
  for (const auto& one : diff.differences) {
    Json row{{"name", one.name}};
    if (!one.left.empty()) row["left"] = one.left;
    if (!one.right.empty()) row["right"] = one.right;
    if (one.left == one.right) {
      row["num_elements"] = one.num_elements;
      row["num_different"] = one.num_different;
      row["largest"] = one.largest;
    }
    json["differences"].push_back(std::move(row));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::checkpoint
