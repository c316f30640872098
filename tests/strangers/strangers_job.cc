// The job that strangers meet: ranks that sum what they make of common weights, and rank 0 saves them after every step.
//   strangers_job STEPS DIRECTORY [GATE]
// GATE: a pipe with a name, at which rank 0 waits in the middle of the steps until somebody has written to it. At the
// end every rank prints `weights HASH over TRANSPORT`, rank 0 the last step that was saved, too.
#include <cstdio>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/run.h"

namespace tessera {
namespace {

constexpr size_t kNumWeights = 5000;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::string text_of(const std::vector<float>& weights) {
  return {reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)};
}

int run_rank(cluster::Context& context, const cluster::Arguments& arguments) {
  if (arguments.size() < 2) throw InvalidArgument("usage: strangers_job STEPS DIRECTORY [GATE]");
  const int64_t steps = parse_int(arguments[0], "STEPS");
  std::vector<float> weights(kNumWeights);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(random_normal({.seed = 7, .stream = hash_name("weights")}, i));
  }
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<float> gradient(kNumWeights);
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = weights[i] * static_cast<float>(context.rank() + 1) / static_cast<float>(step);
    }
    context.world().all_reduce(gradient.data(), static_cast<int64_t>(gradient.size()), DType::kF32,
                               comm::ReduceOp::kSum, "gradient");
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.01F * gradient[i];
    if (context.rank() == 0) {
      if (step == steps / 2 && arguments.size() > 2) {
        say("waiting");
        FILE* gate = std::fopen(arguments[2].c_str(), "r");
        if (gate == nullptr || std::fgetc(gate) == EOF) throw IoError("nobody opens the gate");
        std::fclose(gate);
      }
      FileSystem::local().write_atomically(join_path(arguments[1], fmt::format("step_{}", step)), text_of(weights));
    }
    context.world().barrier("saved");
  }
  if (context.rank() == 0) say(fmt::format("saved step {}", steps));
  say(fmt::format("weights {:016x} over {}", hash_name(text_of(weights)), context.transport()));
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::cluster::run(argc, argv, tessera::run_rank); }
