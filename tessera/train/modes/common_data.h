// The data sets that ranks give for one training or evaluation: are they parts of the same batches? Pure functions on
// the descriptions of all ranks, so that every rank finds the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/dataset.h"

namespace tessera::train {

// How the ranks' rows make a batch.
enum class BatchParts {
  kOfEachRank,  // each rank gives rows of its own
  kOfCommon,    // all give the same rows, of which each takes its part
};

// One rank's data set, as a text that travels.
std::string describe_data(const data::Dataset& dataset);

// Throws InvalidArgument naming the first rank whose data set does not fit rank 0's, and what differs: the batches of
// an epoch; the columns; the order of rows (size, shuffle, seed), where rows are common or the source is cut into
// shards; rows in memory, where they are common; the rows of a short batch. `call` is what they are given to.
void require_common_data(const std::vector<std::string>& by_rank, BatchParts parts, std::string_view call = "train");

// Throws InvalidArgument where `num_parts` ranks give rows of a batch, and a rank's data set says that it is a part of
// another number of them: nobody would read the others.
void require_all_parts(const std::vector<std::string>& by_rank, int num_parts, std::string_view call = "train");

// Ranks [0, num_parts) give a part of each batch each; every other rank r gives what rank r % num_parts gives. Throws
// InvalidArgument naming the first rank that gives other rows, as far as that is known without reading them.
void require_equal_parts(const std::vector<std::string>& by_rank, int num_parts);

// Ranks that read one shard, of as many as there are ranks: "ranks 0 and 1 both read shard 0 of 2"; "" where none do.
std::string find_doubled_shard(const std::vector<std::string>& by_rank);

// Of ranks that give a part of each batch each, though a source is cut into another number of parts: "rank 0 reads
// shard 0 of 4, and 2 ranks give rows"; "" where none is.
std::string find_other_cut(const std::vector<std::string>& by_rank);

// Whether the ranks, each of which gives rows of its own, give the same ones in the same order, as far as that is known
// without reading them: their sources are not cut into shards.
bool give_equal_rows(const std::vector<std::string>& by_rank);

}  // namespace tessera::train
