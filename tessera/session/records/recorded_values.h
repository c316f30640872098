// Recorded values on disk: a folder with a file for each recorded step and rank, step-12.rank-0.jsonl: a line that says
// whose values they are, then one for each value (value_entry.h). RecordedStep: what the files of a step say together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/session/records/value_entry.h"

namespace tessera::session {

// A RecordHeader says whose values a file has: its first line.
struct RecordHeader {
  int64_t step = 0;
  int rank = 0;
  int num_ranks = 1;
  // Each rank's values are its own, as in hybrid parallel: they are no pieces of values of all ranks.
  bool are_own = false;
  std::string mode;         // "data_parallel"
  std::string precision;    // what the network computes in, "f32"
  int64_t num_missing = 0;  // values of the graph that fusion, or a guard, has left no step to make
};

// What a rank records of a step, as the text of its file.
std::string print_record(const RecordHeader& header, const std::vector<ValueEntry>& entries);

struct RankRecord {
  RecordHeader header;
  std::vector<ValueEntry> entries;
};
// Throws InvalidArgument naming the line.
RankRecord parse_record(std::string_view text);

std::string record_file_name(int64_t step, int rank);
// The steps of which a folder has files, ascending. Throws InvalidArgument where it is none, IoError where it cannot be
// read.
std::vector<int64_t> recorded_steps(FileSystem& files, const std::string& directory);
// Removes the files of steps beyond `step`, of an earlier training: this rank's, and of ranks that there are no more.
void remove_later_records(FileSystem& files, const std::string& directory, int64_t step, int rank, int num_ranks);

// A value as all ranks have it together.
struct RecordedValue {
  struct Piece {
    int rank = 0;
    ValueEntry entry;
  };
  ValueName name;
  int64_t number = 0;
  Type type;
  std::string line;
  int own_rank = -1;          // whose it is, where ranks have values of their own; -1: all ranks'
  std::vector<Piece> pieces;  // of the value, by rank
  std::vector<Piece> terms;   // of a sum or the like that it was made as, by rank

  // By which it is found in another run.
  std::string key() const;
  std::string text() const;
  // Of the whole value, from one copy of each piece; nullopt where ranks are missing that have pieces of it.
  std::optional<uint64_t> hash() const;
  std::optional<ValueStatistics> statistics() const;
  // The ranks whose copy of a piece differs from that of the first rank that has it.
  std::vector<int> odd_copies() const;
};

struct RecordedStep {
  RecordHeader header;                // that of the lowest rank
  std::vector<int> missing_ranks;     // that have no file
  std::vector<RecordedValue> values;  // in the order in which a step has them
};

// Puts the records of one step's ranks together. Throws InvalidArgument where they are of jobs that differ, or of one
// rank twice.
RecordedStep merge_records(std::vector<RankRecord> records);
// Reads a step's files. Throws InvalidArgument naming a file that is no record, IoError where one cannot be read.
RecordedStep read_step(FileSystem& files, const std::string& directory, int64_t step);

}  // namespace tessera::session
