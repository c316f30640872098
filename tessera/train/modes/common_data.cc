#include "tessera/train/modes/common_data.h"

#include <algorithm>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

struct Data {
  std::string num_batches;
  std::string columns;
  std::string order;
  std::string hash;
  int64_t num_shards = 1;
  int64_t shard = 0;
  int64_t short_rows = 0;
  int64_t num_parts = 1;  // of which it says that it is one, however the source is cut
};

Data parse_data(const std::string& text) {
  const auto fields = split(text, '\n');
  check_equal(fields.size(), size_t{8}, "fields of a data set's description");
  return {std::string(fields[0]),
          std::string(fields[1]),
          std::string(fields[2]),
          std::string(fields[3]),
          parse_int(fields[4], "a number of shards"),
          parse_int(fields[5], "a shard"),
          parse_int(fields[6], "rows of a short batch"),
          parse_int(fields[7], "a number of parts")};
}

std::string short_batch_text(int64_t rows) {
  return rows == 0 ? "no short batch" : fmt::format("a short batch of {} row{}", rows, rows == 1 ? "" : "s");
}

}  // namespace

std::string describe_data(const data::Dataset& dataset) {
  std::string columns;
  for (const auto& column : dataset.columns()) {
    columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", column.name, column.type);
  }
  const auto& options = dataset.source_options();
  return fmt::format("{}\n{}\n{}\n{:x}\n{}\n{}\n{}\n{}", dataset.get_dataset_size(), columns, dataset.order_text(),
                     dataset.content_hash(), options.num_shards, options.shard_id, dataset.short_batch_rows(),
                     dataset.num_shards());
}

void require_common_data(const std::vector<std::string>& by_rank, BatchParts parts, std::string_view call) {
  const Data first = parse_data(by_rank[0]);
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    const Data other = parse_data(by_rank[rank]);
    if (other.num_batches != first.num_batches) {
      throw InvalidArgument(
          "{}: rank {} has {} batches an epoch, rank 0 has {}; the ranks work on each batch together, so all need "
          "as many",
          call, rank, other.num_batches, first.num_batches);
    }
    if (other.columns != first.columns) {
      throw InvalidArgument("{}: rank {}'s data set has the columns {}, rank 0's has {}; they must be equal", call,
                            rank, other.columns, first.columns);
    }
    const bool is_common = parts == BatchParts::kOfCommon;
    const bool is_cut = first.num_shards > 1 || other.num_shards > 1;
    if ((is_common || is_cut) && other.order != first.order) {
      throw InvalidArgument(
          "{}: rank {}'s rows are in another order than rank 0's, so that {}: it has \"{}\", rank 0 has \"{}\"; "
          "give all ranks' data sets the same seed, which is set_seed()'s where they name none, and the same stages",
          call, rank, is_common ? "they take parts of different batches" : "their shards overlap", other.order,
          first.order);
    }
    if (is_common && other.hash != first.hash) {
      throw InvalidArgument(
          "{}: rank {}'s rows are not rank 0's, though each rank takes its part of the same batches; make them from "
          "one seed on all ranks, and let the data set shuffle",
          call, rank);
    }
    if (other.short_rows != first.short_rows) {
      throw InvalidArgument(
          "{}: rank {} has {} in an epoch, rank 0 has {}; the ranks work on each batch together, so all need as "
          "many rows in it: leave it out (drop_remainder), or give each rank as many",
          call, rank, short_batch_text(other.short_rows), short_batch_text(first.short_rows));
    }
  }
}

void require_all_parts(const std::vector<std::string>& by_rank, int num_parts, std::string_view call) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Data own = parse_data(by_rank[rank]);
    if (own.num_parts == 1 || own.num_parts == num_parts) continue;
    const auto way_out = num_parts == 1
                             ? std::string("make it without num_shards and shard_id")
                             : fmt::format(
                                   "make it with num_shards={} and shard_id, the rank, or without both, as the whole "
                                   "data set, of whose batches each rank takes its rows",
                                   num_parts);
    throw InvalidArgument(
        "{}: rank {}'s data set is one rank's part of {} (num_shards), but {} give{} the rows of a batch, so that {}: "
        "{}",
        call, rank, own.num_parts, plural(num_parts, "rank"), num_parts == 1 ? "s" : "",
        own.num_parts > num_parts ? "nobody would read the other parts" : "some would read the same rows", way_out);
  }
}

void require_equal_parts(const std::vector<std::string>& by_rank, int num_parts) {
  const auto count = static_cast<size_t>(num_parts);
  for (size_t rank = count; rank < by_rank.size(); ++rank) {
    const Data own = parse_data(by_rank[rank]);
    const Data first = parse_data(by_rank[rank % count]);
    const bool is_one_shard = own.num_shards == first.num_shards && own.shard == first.shard;
    if (is_one_shard && own.order == first.order && own.hash == first.hash) continue;
    throw InvalidArgument(
        "train: rank {} reads {}, and rank {}, which has the same place in its stage, {}; they must read the same "
        "rows: "
        "make the data set with {}",
        rank, is_one_shard ? "other rows" : fmt::format("shard {} of {}", own.shard, own.num_shards), rank % count,
        is_one_shard ? "others" : fmt::format("shard {} of {}", first.shard, first.num_shards),
        count == 1 ? "one seed on all ranks, and without num_shards"
                   : fmt::format("num_shards={0} and shard_id=rank % {0}, and with one seed on all ranks", count));
  }
}

std::string find_doubled_shard(const std::vector<std::string>& by_rank) {
  std::vector<Data> all;
  for (const auto& text : by_rank) all.push_back(parse_data(text));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].num_shards != static_cast<int64_t>(all.size())) return {};
    for (size_t other = 0; other < rank; ++other) {
      if (all[other].shard != all[rank].shard) continue;
      return fmt::format("ranks {} and {} both read shard {} of {}", other, rank, all[rank].shard, all.size());
    }
  }
  return {};
}

std::string find_other_cut(const std::vector<std::string>& by_rank) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Data own = parse_data(by_rank[rank]);
    if (own.num_shards == 1 || own.num_shards == static_cast<int64_t>(by_rank.size())) continue;
    return fmt::format("rank {} reads shard {} of {}, and {} give{} rows", rank, own.shard, own.num_shards,
                       plural(static_cast<int64_t>(by_rank.size()), "rank"), by_rank.size() == 1 ? "s" : "");
  }
  return {};
}

bool give_equal_rows(const std::vector<std::string>& by_rank) {
  const Data first = parse_data(by_rank[0]);
  constexpr std::string_view kUnknown = "0";
  return by_rank.size() > 1 && first.num_shards == 1 && first.hash != kUnknown &&
         std::ranges::all_of(by_rank, [&](const std::string& text) {
           const Data other = parse_data(text);
           return other.num_shards == 1 && other.hash == first.hash && other.order == first.order;
         });
}

}  // namespace tessera::train
