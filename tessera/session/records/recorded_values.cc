#include "tessera/session/records/recorded_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"

namespace tessera::session {

using nlohmann::json;

namespace {

constexpr int64_t kFormat = 1;
// A file of more is none that was meant to be read at once.
constexpr int64_t kMostFileBytes = int64_t{1} << 30;
constexpr size_t kMostLineBytes = size_t{1} << 16;
constexpr int64_t kMostRanks = 1 << 20;

std::string print_header(const RecordHeader& header) {
  const json object = {
      {"kind", "recorded values"},     {"format", kFormat},     {"step", header.step}, {"rank", header.rank},
      {"num_ranks", header.num_ranks}, {"own", header.are_own}, {"mode", header.mode}, {"precision", header.precision},
      {"missing", header.num_missing}};
  return object.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

RecordHeader parse_header(std::string_view line) {
  const json object = parse_bounded_json<json>(line, "", {.name = "line of recorded values"});
  if (!object.is_object() || object.value("kind", json()) != json("recorded values")) {
    throw InvalidArgument("it does not say that it has recorded values");
  }
  const auto whole = [&](const char* name, int64_t least, int64_t most) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < least ||
        found->get<int64_t>() > most) {
      throw InvalidArgument("\"{}\" must be a whole number from {} to {}", name, least, most);
    }
    return found->get<int64_t>();
  };
  const auto text = [&](const char* name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) throw InvalidArgument("\"{}\" must be a text", name);
    return found->get<std::string>();
  };
  if (const auto format = whole("format", 1, kMostRanks); format != kFormat) {
    throw InvalidArgument("it has format {}, this version reads format {}", format, kFormat);
  }
  const auto own = object.find("own");
  if (own == object.end() || !own->is_boolean()) throw InvalidArgument("\"own\" must be true or false");
  RecordHeader header{.step = whole("step", 0, int64_t{1} << 48),
                      .rank = static_cast<int>(whole("rank", 0, kMostRanks - 1)),
                      .num_ranks = static_cast<int>(whole("num_ranks", 1, kMostRanks)),
                      .are_own = own->get<bool>(),
                      .mode = text("mode"),
                      .precision = text("precision"),
                      .num_missing = whole("missing", 0, int64_t{1} << 48)};
  if (header.rank >= header.num_ranks) {
    throw InvalidArgument("rank {} of {} ranks", header.rank, header.num_ranks);
  }
  return header;
}

// Of "step-12.rank-3.jsonl".
struct FileName {
  int64_t step = 0;
  int rank = 0;
};

std::optional<int64_t> number_in(std::string_view text) {
  constexpr size_t kMostDigits = 15;
  const bool is_number =
      !text.empty() && text.size() <= kMostDigits && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_number) return std::nullopt;
  return std::stoll(std::string(text));
}

std::optional<FileName> parse_file_name(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  constexpr std::string_view kRank = ".rank-";
  constexpr std::string_view kEnd = ".jsonl";
  const size_t at = name.find(kRank);
  if (!name.starts_with(kStep) || !name.ends_with(kEnd) || at == std::string_view::npos) return std::nullopt;
  const size_t rank_at = at + kRank.size();
  if (rank_at + kEnd.size() > name.size()) return std::nullopt;
  const auto step = number_in(name.substr(kStep.size(), at - kStep.size()));
  const auto rank = number_in(name.substr(rank_at, name.size() - rank_at - kEnd.size()));
  if (!step || !rank || *rank >= kMostRanks) return std::nullopt;
  return FileName{*step, static_cast<int>(*rank)};
}

// One piece of each region: that of the lowest rank.
std::vector<const ValueEntry*> first_copies(const std::vector<RecordedValue::Piece>& pieces) {
  std::vector<const ValueEntry*> first;
  std::set<std::vector<int64_t>> regions;
  for (const auto& [rank, entry] : pieces) {
    if (entry.region.is_empty()) continue;
    auto region = entry.region.offset.to_vector();
    const auto shape = entry.region.shape.to_vector();
    region.insert(region.end(), shape.begin(), shape.end());
    if (regions.insert(std::move(region)).second) first.push_back(&entry);
  }
  return first;
}

bool are_whole(const std::vector<const ValueEntry*>& pieces, const Type& type) {
  // Unsigned: what a damaged file says may be more than there can be.
  uint64_t elements = 0;
  for (const ValueEntry* piece : pieces) elements += static_cast<uint64_t>(piece->region.shape.num_elements());
  return elements == static_cast<uint64_t>(type.shape.num_elements());
}

}  // namespace

std::string print_record(const RecordHeader& header, const std::vector<ValueEntry>& entries) {
  std::string text = print_header(header) + "\n";
  for (const ValueEntry& entry : entries) text += print_entry(entry) + "\n";
  return text + fmt::format("{{\"kind\":\"end\",\"values\":{}}}\n", entries.size());
}

RankRecord parse_record(std::string_view text) {
  RankRecord record;
  int64_t number = 0;
  bool has_end = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    try {
      if (line.size() > kMostLineBytes) throw InvalidArgument("it has {} bytes, a value's has fewer", line.size());
      if (has_end) throw InvalidArgument("the record has ended before");
      if (number == 1) {
        record.header = parse_header(line);
      } else if (line == fmt::format("{{\"kind\":\"end\",\"values\":{}}}", record.entries.size())) {
        has_end = true;
      } else {
        record.entries.push_back(parse_entry(line));
      }
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("line {}: {}", number, error.what());
    }
  }
  if (!has_end) throw InvalidArgument("line {}: the record has no end", number + 1);
  return record;
}

std::string record_file_name(int64_t step, int rank) { return fmt::format("step-{}.rank-{}.jsonl", step, rank); }

std::vector<int64_t> recorded_steps(FileSystem& files, const std::string& directory) {
  if (!files.is_directory(directory)) {
    throw InvalidArgument("{}: there is no folder of that name, to which a training has recorded values", directory);
  }
  std::set<int64_t> steps;
  for (const auto& name : files.list(directory)) {
    if (const auto file = parse_file_name(name)) steps.insert(file->step);
  }
  return {steps.begin(), steps.end()};
}

void remove_later_records(FileSystem& files, const std::string& directory, int64_t step, int rank, int num_ranks) {
  if (!files.is_directory(directory)) return;
  for (const auto& name : files.list(directory)) {
    const auto file = parse_file_name(name);
    if (!file || file->step <= step) continue;
    // Each rank of now looks after its own, and the first one after those of ranks that are gone.
    if (file->rank == rank || (rank == 0 && file->rank >= num_ranks)) files.remove(join_path(directory, name));
  }
}

std::string RecordedValue::key() const {
  return own_rank < 0 ? name.key() : fmt::format("rank {} {}", own_rank, name.key());
}

std::string RecordedValue::text() const {
  return own_rank < 0 ? name.text() : fmt::format("{} of rank {}", name.text(), own_rank);
}

std::optional<uint64_t> RecordedValue::hash() const {
  const auto first = first_copies(pieces);
  if (pieces.empty() || !are_whole(first, type)) return std::nullopt;
  uint64_t sum = 0;
  for (const ValueEntry* piece : first) sum += piece->hash;
  return sum;
}

std::optional<ValueStatistics> RecordedValue::statistics() const {
  const auto first = first_copies(pieces);
  if (pieces.empty() || !are_whole(first, type)) return std::nullopt;
  ValueStatistics all;
  for (const ValueEntry* piece : first) all.add(piece->statistics);
  return all;
}

std::vector<int> RecordedValue::odd_copies() const {
  std::vector<int> odd;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ValueEntry& entry = pieces[i].entry;
    const auto first =
        std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.entry.region == entry.region; });
    if (first->entry.hash != entry.hash) odd.push_back(pieces[i].rank);
  }
  return odd;
}

RecordedStep merge_records(std::vector<RankRecord> records) {
  if (records.empty()) throw InvalidArgument("a step that no rank has recorded");
  std::sort(records.begin(), records.end(),
            [](const RankRecord& a, const RankRecord& b) { return a.header.rank < b.header.rank; });
  RecordedStep step{.header = records.front().header};
  std::set<int> ranks;
  std::map<std::string, size_t> places;
  for (RankRecord& record : records) {
    const RecordHeader& header = record.header;
    if (header.num_ranks != step.header.num_ranks || header.are_own != step.header.are_own ||
        header.mode != step.header.mode) {
      throw InvalidArgument(
          "step {}: rank {} has recorded it as one of {} ranks in {}, rank {} as one of {} in {}: the folder has the "
          "records of several jobs; record each in a folder of its own",
          header.step, header.rank, header.num_ranks, header.mode, step.header.rank, step.header.num_ranks,
          step.header.mode);
    }
    if (!ranks.insert(header.rank).second)
      throw InvalidArgument("step {}: rank {} is there twice", header.step, header.rank);
    for (ValueEntry& entry : record.entries) {
      RecordedValue fresh{.name = entry.name,
                          .number = entry.number,
                          .type = entry.type,
                          .line = entry.line,
                          .own_rank = header.are_own ? header.rank : -1};
      const auto [place, is_new] = places.emplace(fresh.key(), step.values.size());
      if (is_new) step.values.push_back(std::move(fresh));
      RecordedValue& value = step.values[place->second];
      // Of a value of half a type the terms of the sum are wider than the sum.
      if (entry.reduction.empty()) value.type = entry.type;
      auto& list = entry.reduction.empty() ? value.pieces : value.terms;
      list.push_back({header.rank, std::move(entry)});
    }
  }
  for (int rank = 0; rank < step.header.num_ranks; ++rank) {
    if (!ranks.contains(rank)) step.missing_ranks.push_back(rank);
  }
  const auto order = [](const RecordedValue& value) {
    // What is there before the micro-batches comes first, as they come in turn.
    const int moment = value.name.moment == ValueMoment::kBefore ? 0 : value.name.moment == ValueMoment::kAfter ? 2 : 1;
    const int within = value.name.moment == ValueMoment::kInput ? 0 : 1;
    return std::tuple(moment, value.name.run, within, value.number, value.own_rank);
  };
  std::stable_sort(step.values.begin(), step.values.end(),
                   [&](const RecordedValue& a, const RecordedValue& b) { return order(a) < order(b); });
  return step;
}

RecordedStep read_step(FileSystem& files, const std::string& directory, int64_t step) {
  std::vector<RankRecord> records;
  for (const auto& name : files.list(directory)) {
    const auto file = parse_file_name(name);
    if (!file || file->step != step) continue;
    const auto path = join_path(directory, name);
    if (const int64_t size = files.size_bytes(path); size > kMostFileBytes) {
      throw InvalidArgument("{}: it has {} bytes, a record of a step has at most {}", path, size, kMostFileBytes);
    }
    try {
      records.push_back(parse_record(files.read_text(path)));
      const RecordHeader& header = records.back().header;
      if (header.step != step || header.rank != file->rank) {
        throw InvalidArgument("line 1: it is of step {} and rank {}", header.step, header.rank);
      }
    } catch (const InvalidArgument& error) {
      throw InvalidArgument("{}: {}", path, error.what());
    }
  }
  if (records.empty()) throw InvalidArgument("{}: step {} is not recorded", directory, step);
  try {
    return merge_records(std::move(records));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("{}: {}", directory, error.what());
  }
}

}  // namespace tessera::session
