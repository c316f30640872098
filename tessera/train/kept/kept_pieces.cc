#include "tessera/train/kept/kept_pieces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

constexpr const char* kWhat = "a piece that a rank has kept";

// Numbers between commas; none for a scalar.
std::string print_numbers(const Shape& numbers) { return fmt::format("{}", fmt::join(numbers.to_vector(), ",")); }

Shape parse_numbers(std::string_view text) {
  Shape numbers;
  if (text.empty()) return numbers;
  for (const std::string_view word : split(text, ',')) numbers.push_back(parse_int(word, kWhat));
  return numbers;
}

bool is_within(const checkpoint::Region& region, const Shape& shape) {
  if (region.offset.ndim() != shape.ndim() || region.shape.ndim() != shape.ndim()) return false;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const int64_t offset = region.offset[dim];
    if (offset < 0 || offset > shape[dim] || region.shape[dim] < 0 || region.shape[dim] > shape[dim] - offset)
      return false;
  }
  return true;
}

}  // namespace

std::string print_pieces(const KeptPieces& pieces) {
  std::string text;
  for (const auto& [name, piece] : pieces) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\n", name, piece.type, print_numbers(piece.region.offset),
                        print_numbers(piece.region.shape), piece.at);
  }
  return text;
}

KeptPieces parse_pieces(std::string_view text) {
  KeptPieces pieces;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto words = split(line, '\t');
    if (words.size() != 5) throw InvalidArgument("{}: a line has {} fields, not 5", kWhat, words.size());
    KeptPiece piece{.type = parse_type(words[1]),
                    .region = {.offset = parse_numbers(words[2]), .shape = parse_numbers(words[3])},
                    .at = parse_int(words[4], kWhat)};
    if (!is_within(piece.region, piece.type.shape) || piece.at < 0) {
      throw InvalidArgument("{} of \"{}\" is no piece of {}", kWhat, words[0], piece.type);
    }
    if (!pieces.emplace(words[0], piece).second) throw InvalidArgument("{} twice: \"{}\"", kWhat, words[0]);
  }
  return pieces;
}

std::optional<std::vector<PieceSource>> find_sources(const std::vector<KeptPieces>& of_versions,
                                                     const std::string& name, const Type& type) {
  std::vector<PieceSource> sources;
  std::vector<checkpoint::Region> regions;
  for (size_t version = 0; version < of_versions.size(); ++version) {
    const auto found = of_versions[version].find(name);
    if (found == of_versions[version].end()) continue;
    const KeptPiece& piece = found->second;
    if (!(piece.type == type)) return std::nullopt;
    const bool overlaps = std::ranges::any_of(regions, [&](const checkpoint::Region& region) {
      return checkpoint::intersection(region, piece.region).has_value();
    });
    if (overlaps || piece.region.is_empty()) continue;
    regions.push_back(piece.region);
    sources.push_back({version, piece.region, piece.at});
  }
  if (!checkpoint::covers_once(regions, type.shape)) return std::nullopt;
  return sources;
}

}  // namespace tessera::train
