#include "tessera/tools/report/report_command.h"

#include <cstdio>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/arguments/option_use.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/report/compare_runs.h"
#include "tessera/tools/report/report_page.h"
#include "tessera/tools/report/report_text.h"

namespace tessera::tools {

void add_report_command(CLI::App& app) {
  static std::vector<std::string> runs;
  static ReportSources sources;
  static std::string page;
  static bool json = false;
  auto* report = app.add_subcommand("report", "say how a training went by its logs, or compare two, also as a page");
  report->footer(
      "A run is the folder of the logs that a training has written, log.jsonl or log.csv, or such a file "
      "(docs/reports.md).\n"
      "Prints how it ended, its last and best numbers, its speed and the command to repeat it; -o writes the curves,\n"
      "epochs, checkpoints and all else as a page that needs no network. Of two runs: which settings differ, the "
      "first\n"
      "step at which a number does, and by how much, both curves over each other, and which is faster.\n"
      "The page also has the plan of the training step, its memory and, where the run was traced (tessera run "
      "--trace),\n"
      "where its time went, against what the machine can do by --profile.\n"
      "Examples:\n"
      "  tessera report logs -o report.html\n"
      "  tessera report logs --trace job.json --profile here.json -o report.html\n"
      "  tessera report logs --checkpoints checkpoints -o report.html\n"
      "  tessera report before after -o compare.html\n"
      "  tessera report before after --json\n"
      "Exit codes: 0 also where two runs differ, 1 where there is no log of a training or it cannot be read.");
  report->add_option("runs", runs, "a run, or two that are compared")->required()->expected(1, 2);
  report->add_option("-o,--out", page, "write the page to this file");
  report->add_flag("--json", json, "print one JSON object");
  report->add_option("--checkpoints", sources.checkpoints, "the folder of the run's checkpoints");
  report->add_option("--report_dir", sources.failure,
                     "the folder of the ranks' reports of a failure; default: `report` in the run's folder, if it is "
                     "there");
  report->add_option("--trace", sources.trace,
                     "the timeline of the run, or a rank's part; default: `trace.json` in the run's folder, if it is "
                     "there");
  report->add_option("--machine,--profile", sources.profile,
                     "a machine profile, as tessera calibrate writes it, or a machine that has a name: h100-80gb; the "
                     "trace's operators are held against it");
  report->callback([report] {
    const bool is_one = runs.size() == 1;
    require_effects(*report, {{"--checkpoints", is_one, "one run"},
                              {"--report_dir", is_one, "one run"},
                              {"--trace", is_one, "one run"},
                              {"--profile", is_one, "one run"}});
    auto& files = FileSystem::local();
    std::string text;
    require_writable("--out", page);
    std::string page_text;
    if (is_one) {
      sources.path = runs[0];
      const auto run = read_run(files, sources);
      text = json ? report_json(run) : report_text(run);
      if (!page.empty()) page_text = report_page(run);
    } else {
      const auto comparison = compare_runs(files, {.path = runs[0]}, {.path = runs[1]});
      text = json ? comparison_json(comparison) : comparison_text(comparison);
      if (!page.empty()) page_text = comparison_page(comparison);
    }
    if (!page.empty()) files.write_atomically(page, page_text);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace tessera::tools
