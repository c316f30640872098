// ValueEntry: what is recorded of one rank's piece of a value of a step, so that the values of two runs can be compared
// though neither run has kept them: what it is, which elements the piece has, their layout-free hash
// (checkpoint/format/element_hash.h) and a few statistics. The hashes of pieces that make up a value add up to one that
// does not depend on how it is cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/checkpoint/format/region.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

// ValueStatistics say what the elements of a piece are like, or those of all pieces together. What is not finite is
// only counted.
struct ValueStatistics {
  int64_t count = 0;
  int64_t num_not_finite = 0;
  double min = 0;  // of the finite elements; 0 where there are none
  double max = 0;
  double sum = 0;
  double sum_of_squares = 0;

  int64_t num_finite() const { return count - num_not_finite; }
  double mean() const;
  double norm() const;  // the root of the sum of squares
  // Takes those of other elements in.
  void add(const ValueStatistics& others);
};
ValueStatistics statistics_of(const Tensor& elements);

// When in a step a value is there.
enum class ValueMoment {
  kInput,   // the data of a batch
  kBefore,  // a parameter or a state, before the step
  kMade,    // what an operator has made
  kAfter    // a parameter or a state, behind the step
};

// What a value is in any run of the network, however it is split and in whatever it computes.
struct ValueName {
  ValueMoment moment = ValueMoment::kMade;
  int64_t run = 1;           // which of the step's micro-batches, from 1
  std::string op;            // "" of what no operator has made
  std::string source;        // of an operator the path of its cell, else the name of the value
  bool is_gradient = false;  // the operator is one of backward
  int64_t ordinal = 1;       // among the operators of equal op and source, from 1
  int64_t output = 0;        // which of its results

  // By which two runs' values are found to be the same.
  std::string key() const;
  // `matmul "up"`, `the gradient matmul "up" #2, result 1`, `the parameter or state "up.weight" before the step`.
  std::string text() const;
};

inline constexpr const char* kOwnOfRank = "own";

struct ValueEntry {
  ValueName name;
  int64_t number = 0;  // its place in the order of the graph
  Type type;           // of the whole value
  std::string line;    // of the script, that made it; "" where that is not known
  checkpoint::Region region;
  // How the pieces of equal regions become the value: "" where each is that already, else "sum", "max", ...; kOwnOfRank
  // where they are no pieces of one value.
  std::string reduction;
  uint64_t hash = 0;
  ValueStatistics statistics;
};

// Hash and statistics of a piece, dense and row-major; all else is in `entry` already.
void describe_piece(ValueEntry& entry, const Tensor& piece);

// One line of JSON, without its end.
std::string print_entry(const ValueEntry& entry);
// Throws InvalidArgument naming what is missing or out of range.
ValueEntry parse_entry(std::string_view line);

}  // namespace tessera::session
