// Where a network is cut into the chunks of a pipeline: stretches of it, one or several for each stage, such that the
// slowest chunk is as fast as can be. Data in, data out; stages/cut_places.h says what a network's stretches are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::compiler {

// What lies between two neighbouring places where the network can be cut. Times and bytes are those of one rank and of
// one micro-batch.
struct CutPiece {
  std::string first;             // cell
  std::string last;              // cell
  double seconds = 0;            // of forward, backward and weight gradients
  int64_t persistent_bytes = 0;  // parameters, their optimizer states and accumulators
  int64_t kept_bytes = 0;        // from forward until backward
  bool has_parameters = false;   // a chunk needs some
  double sum_seconds = 0;        // once a step: gradients, summed over the ranks of the stage
  bool operator==(const CutPiece&) const = default;
};

// A place is between piece i and piece i + 1.
struct CutPlace {
  double forward_seconds = 0;   // a message with all that the pieces before send to those after
  double backward_seconds = 0;  // and their gradients
  int64_t forward_bytes = 0;
  int64_t backward_bytes = 0;
  bool operator==(const CutPlace&) const = default;
};

struct CutProblem {
  std::vector<CutPiece> pieces;
  std::vector<CutPlace> places;  // one fewer
  // The same pieces and places on stages of other numbers of ranks; and by chunk which of them are its own: 0 those
  // above, i the i-th of the others. Empty: all stages are alike.
  std::vector<CutProblem> others = {};
  std::vector<int> kinds = {};

  const CutProblem& of_chunk(int chunk) const {
    const int kind = kinds.empty() ? 0 : kinds[static_cast<size_t>(chunk)];
    return kind == 0 ? *this : others[static_cast<size_t>(kind - 1)];
  }
  // Of a message over the place behind a chunk: of the one of both sides that takes longer.
  CutPlace place_behind(int chunk, int place) const;
};

struct CutLimits {
  int stages = 1;
  int segments = 1;                // chunks of each stage
  int64_t memory_limit_bytes = 0;  // of a rank; 0: none. Each chunk of a stage gets an equal share.
  // A chunk holds what it keeps of this many micro-batches at once, of so many as there are chunks from it on if these
  // are fewer; with `holds_all` of this many in each chunk.
  int micro_batches = 1;
  bool holds_all = false;
  int receive_ahead = 1;  // and of so many more, if there are as many

  int num_chunks() const { return stages * segments; }
};

struct StageCuts {
  std::vector<int> ends;       // by chunk: one past its last piece
  double longest_seconds = 0;  // of a chunk or of a message between two, whichever is longest
};

// How many micro-batches a chunk holds at once.
int held_micro_batches(const CutLimits& limits, int chunk);
// Of pieces begin..end-1, where all stages are alike.
double chunk_seconds(const CutProblem& problem, int begin, int end);

// Of all cuts into so many chunks, each with parameters and within its memory, one whose longest chunk or message
// is shortest; of these the one whose messages are shortest. That is proven: all cuts are looked at, by dynamic
// programming. Throws InvalidArgument where there are fewer pieces with parameters than chunks, and where no cut keeps
// to the limit: the message then has the least limit that one does.
StageCuts choose_cuts(const CutProblem& problem, const CutLimits& limits);

// The same with the cut after `chunk` moved by so many pieces, whatever memory that takes; nullopt where a chunk would
// have none.
std::optional<StageCuts> moved_cut(const CutProblem& problem, const StageCuts& cuts, int chunk, int pieces);

}  // namespace tessera::compiler
