#include "tessera/tools/arguments/option_use.h"

#include "tessera/engine.h"

namespace tessera::tools {

void require_effects(const CLI::App& command, const std::vector<OptionEffect>& uses) {
  for (const OptionEffect& use : uses) {
    if (command.get_option(use.name)->count() == 0 || use.has_effect) continue;
    throw UsageError("{} has no effect here: it goes with {}", use.name, use.with);
  }
}

std::vector<OptionEffect> uses_of_step_options(const StepOptions& options, bool is_compiled, bool has_strategies) {
  const bool is_built_in = !is_file(options);
  // The batch of a built-in network is as large as its ranks want it, where nothing else is said.
  const bool ranks_make_batch = is_built_in && options.batch_size == 0;
  constexpr const char* kBuiltIn = "a built-in network; a file has a batch, dtypes and classes of its own";
  constexpr const char* kCompiled = "a step that is compiled for ranks: --stage plan, local or schedule";
  return {
      {"--batch_size", is_built_in, kBuiltIn},
      {"--num_classes", is_built_in, kBuiltIn},
      {"--precision", is_built_in, kBuiltIn},
      {"--ranks", is_compiled || ranks_make_batch, kCompiled},
      {"--mesh", is_compiled || ranks_make_batch, kCompiled},
      {"--input", is_compiled, kCompiled},
      {"--strategy", is_compiled || has_strategies, "a whole step: --stage logical, plan, local or schedule"},
      {"--semi_auto", is_compiled, kCompiled},
      {"--propagate", is_compiled, kCompiled},
      {"--propagate", !options.propagate || has_any_strategy(options), "strategies, which this step has none of"},
      {"--optimizer_shards", is_compiled, kCompiled},
      {"--optimizer_shard_size", is_compiled && options.optimizer_shards, "--optimizer_shards"},
      {"--recompute", is_compiled, kCompiled},
      {"--memory_limit", is_compiled, kCompiled},
  };
}

}  // namespace tessera::tools
