// Where a network is cut into the chunks of a pipeline: stretches of it, one or several for each stage, such that the
// slowest chunk is as fast as can be. Data in, data out; cuts/cut_places.h says what a network's stretches are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"

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

// What simulations have shown of the memory of chunks, which pieces alone do not tell: see note_needed().
struct KnownBytes {
  std::map<std::array<int, 3>, int64_t> of_chunks = {};  // by chunk, its first piece and one past its last
  std::vector<int64_t> extra = {};  // by chunk: what it takes at least beside its pieces; empty: nothing is known
  std::set<std::vector<int>> too_large = {};  // cuts, by their ends, that do not keep to the limit
};

struct CutLimits {
  int stages = 1;
  int segments = 1;                // chunks of each stage
  int64_t memory_limit_bytes = 0;  // of a rank, for all chunks of its stage; 0: none
  // A chunk holds what it keeps of this many micro-batches at once, of so many as there are chunks from it on if these
  // are fewer; with `holds_all` of this many in each chunk.
  int micro_batches = 1;
  bool holds_all = false;
  int receive_ahead = 1;  // and of so many more, if there are as many
  // Of one each, as a schedule can that is searched for.
  bool holds_least = false;
  std::vector<int> stages_of_chunks = {};  // empty: chunks go over the stages in turn
  KnownBytes known = {};

  int num_chunks() const { return stages * segments; }
  int stage_of(int chunk) const {
    return stages_of_chunks.empty() ? chunk % stages : stages_of_chunks[static_cast<size_t>(chunk)];
  }
};

struct StageCuts {
  std::vector<int> ends;       // by chunk: one past its last piece
  double longest_seconds = 0;  // of a chunk or of a message between two, whichever is longest
};

// How many micro-batches a chunk holds at once.
int held_micro_batches(const CutLimits& limits, int chunk);
// Of pieces begin..end-1, where all stages are alike.
double chunk_seconds(const CutProblem& problem, int begin, int end);

// No cut keeps to the memory limit.
class DoesNotFit : public InvalidArgument {
 public:
  DoesNotFit(const std::string& message, std::vector<int64_t> needed_bytes)
      : InvalidArgument(message), needed_bytes_(std::move(needed_bytes)) {}

  // By stage, of a rank: what the cut needs that comes closest.
  const std::vector<int64_t>& needed_bytes() const { return needed_bytes_; }
  // The least limit that would do.
  int64_t least_limit_bytes() const;

 private:
  std::vector<int64_t> needed_bytes_;
};
// The same with the words of choose_cuts().
DoesNotFit no_cut_fits(const CutLimits& limits, std::vector<int64_t> needed_bytes);

// Of all cuts into so many chunks, each with parameters and each stage within its memory, one whose longest chunk or
// message is shortest; of these the one whose messages are shortest. That is proven: all cuts are looked at, by dynamic
// programming; where stages have several chunks, whose memory adds up, as far as a million steps go. Throws
// InvalidArgument where there are fewer pieces with parameters than chunks, and DoesNotFit where no cut keeps to the
// limit: the message then has the least limit that one does.
StageCuts choose_cuts(const CutProblem& problem, const CutLimits& limits);

// Of all cuts, looked at likewise, the one whose stage with the most memory takes least, whatever the limit is; but
// none that is known not to keep to it, or shares a stage with such a one that alone does not.
struct LeastMemoryCuts {
  StageCuts cuts;
  std::vector<int64_t> bytes;  // by stage
  int64_t most() const;        // of these
};
LeastMemoryCuts least_memory_cuts(const CutProblem& problem, const CutLimits& limits);

// Notes in `limits` what these cuts need, by stage, as their simulation has shown: they are known then, and others are
// taken to need at least as much more than their pieces say as the closest of those that are known.
void note_needed(const CutProblem& problem, const StageCuts& cuts, const std::vector<int64_t>& needed_bytes,
                 CutLimits& limits);

// The same with the cut after `chunk` moved by so many pieces, whatever memory that takes; nullopt where a chunk would
// have none.
std::optional<StageCuts> moved_cut(const CutProblem& problem, const StageCuts& cuts, int chunk, int pieces);

}  // namespace tessera::compiler
