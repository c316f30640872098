// Trainings in a pipeline and on one device that accumulates the same micro-batches, to be compared.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/nn/cell.h"
#include "tessera/nn/gradients/loss_scale.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/options/parallel_mode.h"

namespace tessera::equivalence {

// What a cell is told.
struct Place {
  Place(int s, int in_segment = 0) : stage(s), segment(in_segment) {}  // NOLINT: a stage alone is a place, too
  int stage;
  int segment;
};
using Places = std::map<std::string, Place>;

struct Row {
  std::string name;
  std::string network;
  int stages = 2;
  Places cells;  // by path
  std::string schedule = "1f1b";
  int ranks_per_stage = 1;
  std::vector<int> ranks = {};  // by stage, where they differ
  int64_t micro_batches = 4;
  int64_t rows = 8;
  int receive_ahead = 1;
  std::vector<std::tuple<std::string, std::string, mesh::Strategy>> strategies = {};
  bool parallel_optimizer = false;
  int layers = 0;        // of a chain, or of a tied one
  double clip_norm = 0;  // of all gradients together; 0: they are not clipped
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  std::optional<DType> precision = std::nullopt;
  int64_t float32_steps = 10;  // over which float32 is compared; of 1 the losses alone
  int64_t bad_step = -1;       // at which the last micro-batch has an input that is not finite
  comm::SimulatedLink link = {};
  std::vector<std::string> recomputed = {};  // cells, by path
  bool finds_cuts = false;                   // automatic parallelism does, in place of `cells`
  int segments = 0;                          // then
  bool finds_ranks = false;                  // and how many stages there are, and how many ranks each has
  std::optional<compiler::MachineProfile> profile = std::nullopt;  // by which it does; none: the example

  int num_ranks() const;
};

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
  std::map<int, int> ranks = {};  // by stage how many
};

// As float64 on plain loops, or float32 on fast kernels. `dtype`: of the parameters.
Outcome train_pipeline(const Row& row, DType dtype, bool reference);
// On one device that accumulates.
Outcome train_alone(const Row& row, DType dtype, bool reference);
// The largest relative deviation of losses and parameters; of a single step that of its loss.
double deviation_between(const Outcome& one, const Outcome& many);
// That between these two.
double deviation_of(const Row& row, DType dtype, bool reference);

// Where cells of the networks are.
inline const Places kMlp2 = {{"up", 0}, {"down", 1}};
inline const Places kTransformer2 = {{"embedding", 0}, {"norm1", 0}, {"query", 0}, {"key", 0},  {"value", 0},
                                     {"output", 0},    {"norm2", 1}, {"up", 1},    {"down", 1}, {"head", 1}};
// Values that skip a stage: the residual goes from the first to the third.
inline const Places kTransformer3 = {{"embedding", 0}, {"norm1", 0}, {"query", 1}, {"key", 1},  {"value", 1},
                                     {"output", 1},    {"norm2", 2}, {"up", 2},    {"down", 2}, {"head", 2}};
inline const Places kTransformer4 = {{"embedding", 0}, {"norm1", 0}, {"query", 0}, {"key", 1},  {"value", 1},
                                     {"output", 2},    {"norm2", 2}, {"up", 3},    {"down", 3}, {"head", 3}};
inline const Places kTied2 = {{"words", 0}, {"up", 0}, {"down", 1}, {"norm", 1}};
inline const Places kTied3 = {{"words", 0}, {"up", 1}, {"down", 2}, {"norm", 2}};
inline const Places kGpt2 = {{"net.word_embedding", 0},
                             {"net.position_embedding", 0},
                             {"net.blocks.0", 0},
                             {"net.blocks.1", 1},
                             {"net.norm", 1}};
inline const Places kTranslator2 = {{"net.src_embedding", 0},
                                    {"net.base1.encoder", 0},
                                    {"net.tgt_embedding", 1},
                                    {"net.base1.decoder", 1},
                                    {"net.head", 1}};
inline const Places kResNet50 = {{"head", 0}, {"layer1", 0}, {"layer2", 0}, {"layer3", 1}, {"layer4", 1}, {"fc", 1}};
inline const Places kResNet2 = {{"stem", 0}, {"bn", 0}, {"conv1", 1}, {"bn1", 1}, {"down", 1}, {"fc", 1}};

// So many layers and the head, in so many chunks of one after the other.
Places chain_in(int layers, int chunks);

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Row& row, std::ostream* out);

}  // namespace tessera::equivalence
