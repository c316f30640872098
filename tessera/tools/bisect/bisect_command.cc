#include "tessera/tools/bisect/bisect_command.h"

#include <cstdio>
#include <optional>
#include <string>

#include "tessera/engine.h"
#include "tessera/tools/arguments/option_use.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/bisect/bisect_text.h"

namespace tessera::tools {

void add_bisect_command(CLI::App& app) {
  static std::string left;
  static std::string right;
  static double tolerance = 0;
  static int64_t step = 0;
  static bool all = false;
  static bool json = false;
  auto* bisect = app.add_subcommand("bisect", "find the first operator whose value differs between two trainings");
  bisect->footer(
      "A and B are folders to which two trainings have recorded hashes and statistics of their values, by\n"
      "`tessera run --record_values DIR`, record_values of a model, or TESSERA_RECORD_VALUES (docs/bisect.md). Says "
      "at\n"
      "which step they part, by which operator of the network, on which ranks where both have cut the value alike, "
      "and\n"
      "how far apart it is. Without B: which ranks of A have copies of a value that are not alike.\n"
      "Values that only one of the runs has, as fusion takes some away, are not compared; fuse=False keeps all.\n"
      "Examples:\n"
      "  tessera bisect before after                     to the bit\n"
      "  tessera bisect one_rank four_ranks --tolerance 1e-4    sums are added up in other orders there\n"
      "  tessera bisect float32 bfloat16                 dtypes that differ are compared by statistics\n"
      "  tessera bisect before after --step 7 --json\n"
      "Exit codes: 0 also where two runs differ, 1 where there are no records or they cannot be read.");
  bisect->add_option("a", left, "a run's recorded values")->required();
  bisect->add_option("b", right, "another's");
  auto* bound = bisect
                    ->add_option("--tolerance", tolerance,
                                 "go on past values whose statistics are no further apart; default: to the bit")
                    ->check(CLI::Range(0.0, 1e6));
  auto* one = bisect->add_option("--step", step, "look at this step only")->check(count_from(1));
  bisect->add_flag("--all", all, "go on behind the first step that differs, with a line for each");
  bisect->add_flag("--json", json, "print one JSON object");
  bisect->callback([bisect, bound, one] {
    const bool are_two = !right.empty();
    require_effects(*bisect, {{"--tolerance", are_two, "two runs"},
                              {"--all", are_two && one->count() == 0, "two runs, without --step"}});
    auto& files = FileSystem::local();
    const std::optional<int64_t> only = one->count() > 0 ? std::optional(step) : std::nullopt;
    std::string text;
    if (are_two) {
      session::ComparisonOptions options;
      if (bound->count() > 0) options.tolerance = tolerance;
      const auto comparison = session::compare_records(files, left, right, options, all, only);
      text = json ? bisect_json(comparison, options) : bisect_text(comparison, options);
    } else {
      const auto copies = find_odd_copies(files, left, only);
      text = json ? odd_copies_json(copies) : odd_copies_text(copies);
    }
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace tessera::tools
