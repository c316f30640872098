#include "tessera/tools/plan/stages_diff.h"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"
#include "tessera/engine.h"
#include "tessera/tools/plan/plan_why.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& path) {
  constexpr JsonKind kind{.name = "plan"};
  return parse_bounded_json<Json>(read_settings(FileSystem::local(), path, kind.name), path, kind);
}

// Throws where a member is missing, or is something else.
template <typename Look>
auto looked_at(const std::string& path, const Look& look) {
  try {
    return look();
  } catch (const Json::exception& error) {
    throw InvalidArgument("{}: not what tessera plan --stages --json writes: {}", path, plain_json_words(error.what()));
  }
}

// A pipeline, as far as it is compared.
struct PipelineSummary {
  std::string model;
  int num_ranks = 0;
  std::vector<int> ranks;  // by stage
  int micro_batches = 0;
  std::string way;  // within the stages, and the schedule
  double seconds = 0;
  struct StageSummary {
    double phase_seconds = 0;  // of a micro-batch
    int64_t memory_bytes = 0;
    std::string layers;
  };
  std::vector<StageSummary> stages;
  std::map<std::string, std::string> cells;  // where each is
};

PipelineSummary summary_of(const std::string& path) {
  const Json json = read(path);
  return looked_at(path, [&] {
    PipelineSummary summary{.model = json.at("model"), .num_ranks = json.at("num_ranks")};
    const Json& pipeline = json.at("pipeline");
    if (pipeline.is_null()) throw UsageError("{}: one stage was taken, there is no pipeline to compare", path);
    summary.ranks = pipeline.at("stage_ranks").get<std::vector<int>>();
    summary.micro_batches = pipeline.at("micro_batches");
    summary.way =
        fmt::format("{}, {}", pipeline.at("inside").get<std::string>(), pipeline.at("found_by").get<std::string>());
    summary.seconds = pipeline.at("step_seconds");
    for (const Json& stage : pipeline.at("stages")) {
      PipelineSummary::StageSummary of_stage{.memory_bytes = stage.at("memory_bytes")};
      std::vector<std::string> layers;
      for (const Json& chunk : stage.at("chunks")) {
        of_stage.phase_seconds += chunk.at("forward_seconds").get<double>() +
                                  chunk.at("backward_seconds").get<double>() +
                                  chunk.at("weight_gradient_seconds").get<double>();
        layers.push_back(fmt::format("{} to {}", chunk.at("first_layer").get<std::string>(),
                                     chunk.at("last_layer").get<std::string>()));
      }
      of_stage.layers = fmt::format("{}", fmt::join(layers, " and "));
      summary.stages.push_back(std::move(of_stage));
    }
    for (const auto& [cell, at] : pipeline.at("cells").items()) summary.cells[cell] = at.dump();
    return summary;
  });
}

std::string line_of(const std::string& path, const PipelineSummary& summary) {
  return fmt::format("{}: {} of {} rank{}, {}, {}: a step of {}\n", path, plural(std::ssize(summary.stages), "stage"),
                     fmt::join(summary.ranks, " + "), summary.ranks == decltype(summary.ranks){1} ? "" : "s",
                     plural(summary.micro_batches, "micro-batch"), summary.way, format_seconds(summary.seconds));
}

std::string stage_text(const PipelineSummary& summary, size_t stage) {
  if (stage >= summary.stages.size()) return "not there";
  const auto& of_stage = summary.stages[stage];
  return fmt::format("{} rank{}, {}, {} a micro-batch, {} a rank", summary.ranks.at(stage),
                     summary.ranks.at(stage) == 1 ? "" : "s", of_stage.layers, format_seconds(of_stage.phase_seconds),
                     format_bytes(of_stage.memory_bytes));
}

}  // namespace

bool is_stages_file(const std::string& path) {
  const Json json = read(path);
  return json.is_object() && json.contains("pipeline");
}

std::string stages_diff_text(const std::string& first, const std::string& second) {
  const auto a = summary_of(first);
  const auto b = summary_of(second);
  if (a.model != b.model || a.num_ranks != b.num_ranks) {
    throw UsageError("{} is of {} on {}, {} of {} on {}: compare pipelines of one network and one number of ranks",
                     first, a.model, plural(a.num_ranks, "rank"), second, b.model, b.num_ranks);
  }
  auto text = line_of(first, a) + line_of(second, b);
  text += fmt::format("{:>12}  a step\n", signed_seconds(b.seconds - a.seconds));
  for (size_t stage = 0; stage < std::max(a.stages.size(), b.stages.size()); ++stage) {
    const auto before = stage_text(a, stage);
    const auto after = stage_text(b, stage);
    text +=
        fmt::format("\nstage {}: {}\n", stage, before == after ? "alike, " + before : before + "\n      -> " + after);
  }
  std::vector<std::string> moved;
  for (const auto& [cell, at] : a.cells) {
    const auto other = b.cells.find(cell);
    const auto to = other == b.cells.end() ? "none" : other->second;
    if (to != at) moved.push_back(fmt::format("{} {} -> {}", cell, at, to));
  }
  text +=
      fmt::format("\ncells on other stages: {}\n", moved.empty() ? "none" : fmt::format("{}", fmt::join(moved, ", ")));
  return text;
}

}  // namespace tessera::tools
