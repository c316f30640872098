#include "tessera/tools/timeline/trace_command.h"

#include <cstdio>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/timeline/timeline_text.h"

namespace tessera::tools {
namespace {

void add_merge(CLI::App& trace) {
  static std::vector<std::string> parts;
  static std::string out;
  static std::string predicted;
  auto* merge = trace.add_subcommand("merge", "join what the ranks have recorded into one timeline");
  merge->footer(
      "PARTS are the files FILE.rank.N that ranks have written (docs/timeline.md). `tessera run --trace` joins those "
      "of\n"
      "its own job itself; parts of several hosts, and of a job that was started in another way, are joined by this.\n"
      "Ranks of one host share a clock; the clocks of hosts are brought together by their collectives. The parts "
      "stay.\n"
      "Prints what is missing.\n"
      "Examples:\n"
      "  tessera trace merge -o job.json job.json.rank.*\n"
      "  tessera simulate step.graph --ranks 4 --profile here.json --trace step.json\n"
      "  tessera trace merge -o job.json job.json.rank.* --predicted step.json     with the simulation beside it");
  merge->add_option("parts", parts, "the ranks' files")->required();
  merge->add_option("-o,--out", out, "write the timeline to this file")->required();
  merge->add_option("--predicted", predicted,
                    "a simulation that is shown beside: what tessera simulate --trace writes");
  merge->callback([] {
    auto& files = FileSystem::local();
    const auto job = timeline::join_parts(files, parts, predicted);
    timeline::write_timeline(files, out, job);
    const auto missing = job.missing_ranks();
    if (!missing.empty()) {
      std::printf("without %s %s of %d, which %s written nothing here\n", missing.size() == 1 ? "rank" : "ranks",
                  fmt::format("{}", fmt::join(missing, ", ")).c_str(), job.size(),
                  missing.size() == 1 ? "has" : "have");
    }
  });
}

void add_summary(CLI::App& trace) {
  static std::string path;
  static std::string profile;
  static bool json = false;
  auto* summary = trace.add_subcommand("summary", "say where the time of a job went, and what is worth doing");
  summary->footer(
      "FILE is a timeline, or one rank's part. Only steps that all ranks have recorded whole count. Prints where a\n"
      "rank's step goes, the same of the critical path, the operators, collectives and ranks that take longest, and "
      "up\n"
      "to five things that are worth doing. With the profile of the machine, operators are held against what it could\n"
      "compute them in at best; with a simulation in the timeline (merge --predicted), against what it says.\n"
      "Examples:\n"
      "  tessera trace summary job.json\n"
      "  tessera calibrate --out here.json; tessera trace summary job.json --profile here.json\n"
      "  tessera trace summary job.json --json");
  summary->add_option("file", path, "a timeline")->required();
  summary->add_option("--machine,--profile", profile,
                      "a machine profile, as tessera calibrate writes it, or a machine that has a name: h100-80gb");
  summary->add_flag("--json", json, "print one JSON object");
  summary->callback([] {
    const auto found = summary_of(FileSystem::local(), path, profile);
    std::fputs((json ? timeline_json(found) : timeline_text(found, path)).c_str(), stdout);
  });
}

void add_export(CLI::App& trace) {
  static std::string path;
  static std::string out;
  auto* exported = trace.add_subcommand("export", "write a timeline in Perfetto's own form");
  exported->footer(
      "FILE is a timeline, or one rank's part. ui.perfetto.dev shows both forms; its own one, in Protocol Buffers, is\n"
      "smaller and opens faster, and Perfetto's trace processor and Python package read it for queries. Spans that\n"
      "overlap, as collectives do, are drawn beside each other there. Tessera itself reads FILE, which stays.\n"
      "Examples:\n"
      "  tessera trace export job.json -o job.pftrace\n"
      "  trace_processor_shell -q queries.sql job.pftrace     Perfetto's program, which is not part of Tessera");
  exported->add_option("file", path, "a timeline")->required();
  exported->add_option("-o,--out", out, "write the trace to this file")->required();
  exported->callback([] {
    auto& files = FileSystem::local();
    const auto job = timeline::read_job(files, path);
    files.write_atomically(out, timeline::perfetto_trace(job, timeline::find_steps(job)), 0600);
  });
}

}  // namespace

void add_trace_command(CLI::App& app) {
  auto* trace = app.add_subcommand(
      "trace", "join, sum up and export the timelines that jobs have recorded (tessera run --trace)");
  trace->require_subcommand(1);
  add_merge(*trace);
  add_summary(*trace);
  add_export(*trace);
}

}  // namespace tessera::tools
