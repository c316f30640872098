#include "tessera/tools/plan/stages_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/tools/plan/stages_words.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using compiler::PlannedStages;

// Of a picture: a line of it should fit onto a wide screen.
constexpr int kPictureWidth = 150;

std::string seconds_or_no_fit(double seconds) { return std::isfinite(seconds) ? format_seconds(seconds) : "no fit"; }

std::string ranks_text(const PlannedStages& planned, int stage) {
  const int first = planned.ranks.first(stage);
  const int count = planned.ranks.count(stage);
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

// What crosses the cut after a chunk, there and back, for a micro-batch, by each rank.
compiler::ChunkTraffic crossing(const PlannedStages& planned, int chunk, bool back) {
  compiler::ChunkTraffic sum;
  for (const auto& way : planned.simulated.traffic) {
    const auto [first, last] = std::minmax(way.from, way.to);
    if (first > chunk || last <= chunk || back != (way.from > way.to)) continue;
    sum.messages += way.messages;
    sum.bytes += way.bytes;
  }
  return sum;
}

double gap_of(const PlannedStages& planned) {
  return planned.step_seconds() == 0 ? 0 : 1 - planned.simulated.bound_seconds() / planned.step_seconds();
}

// As wide as the terminal; in files and pipes as wide as most can be.
std::string picture_of(const PlannedStages& planned) {
  winsize terminal{};
  const bool is_terminal = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col > 0;
  const pipeline::PictureOptions options{.max_width = is_terminal ? terminal.ws_col : kPictureWidth};
  const auto& schedule = planned.simulated.found.schedule;
  return pipeline::picture(schedule, options) + pipeline::legend(schedule, options);
}

// The chunks in the order of the network, each with its stage; what is of a stage as a whole stands with its first.
std::string table_of(const PlannedStages& planned) {
  size_t width = 11;
  for (int chunk = 0; chunk < planned.num_chunks(); ++chunk) {
    width = std::max({width, first_piece(planned, chunk).first.size(), last_piece(planned, chunk).last.size()});
  }
  constexpr const char* kRow = "{:<7}{:<9}{:<{}}  {:<{}}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>7}{:>12}";
  auto text = fmt::format(kRow, "stage", "ranks", "first layer", width, "last layer", width, "forward", "backward",
                          "weights", "update", "lasting", "micro-batch", "slots", "memory") +
              "\n";
  for (int chunk = 0; chunk < planned.num_chunks(); ++chunk) {
    const auto& at = planned.simulated.chunks[static_cast<size_t>(chunk)];
    const auto& stage = planned.simulated.stages[static_cast<size_t>(at.stage)];
    const auto once = [&](std::string figure) { return at.segment == 0 ? figure : ""; };
    auto row = fmt::format(kRow, at.stage, ranks_text(planned, at.stage), first_piece(planned, chunk).first, width,
                           last_piece(planned, chunk).last, width, format_seconds(at.forward_seconds),
                           format_seconds(at.backward_seconds),
                           planned.simulated.split_backward() ? format_seconds(at.weight_gradient_seconds) : "-",
                           once(format_seconds(stage.update_seconds)), once(format_bytes(stage.persistent_bytes)),
                           format_bytes(at.slot_bytes), at.slots, once(format_bytes(stage.memory_bytes())));
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  text += fmt::format("\n{:<7}{:<{}}  {:<{}}{:>12}{:>12}{:>12}{:>12}{:>14}\n", "cut", "after", width, "before", width,
                      "messages", "forward", "messages", "backward", "bytes a step");
  for (int chunk = 0; chunk + 1 < planned.num_chunks(); ++chunk) {
    const auto there = crossing(planned, chunk, false);
    const auto back = crossing(planned, chunk, true);
    text += fmt::format("{:<7}{:<{}}  {:<{}}{:>12}{:>12}{:>12}{:>12}{:>14}\n", chunk, last_piece(planned, chunk).last,
                        width, first_piece(planned, chunk + 1).first, width, there.messages * planned.micro_batches,
                        format_bytes(there.bytes), back.messages * planned.micro_batches, format_bytes(back.bytes),
                        format_bytes((there.bytes + back.bytes) * planned.micro_batches));
  }
  return text;
}

std::string title_of(const PlannedStages& planned, const StagesStep& step, const std::string& model) {
  return fmt::format("{} on {} as {} of {}, machines \"{}\": {} of {}, within a stage {}, schedule {}\n", model,
                     plural(step.num_ranks, "rank"), stages_name(planned), ranks_name(planned.ranks), step.profile.name,
                     plural(planned.micro_batches, "micro-batch"), plural(step.rows / planned.micro_batches, "row"),
                     name_of(planned.inside), schedule_name(planned, step));
}

// How the ranks are dealt, where that was searched for.
std::string ranks_of(const StagesStep& step) {
  const PlannedStages& planned = *step.taken;
  if (!step.searches_ranks || planned.num_stages == step.num_ranks) return "";
  const auto bound = step.planner->deal_bound(planned);
  if (!bound) return "";
  const auto sizes = compiler::sizes_of_stages(step.num_ranks);
  const auto among = static_cast<int>(sizes.size()) == step.num_ranks - 1
                         ? std::string()
                         : fmt::format(", each of {} ranks,", fmt::join(sizes, ", "));
  const auto dealt = fmt::format("of all ways to deal {} to {}{}", plural(step.num_ranks, "rank"),
                                 plural(planned.num_stages, "stage"), among);
  const auto what = fmt::format("shorter longest {}, its share of the sums of gradients included",
                                planned.num_segments() == 1 ? "stage" : "chunk");
  const double gap = bound->gap();
  if (gap == 0) return fmt::format("ranks     proven: {} none has a {}\n", dealt, what);
  const auto& shortest = bound->shortest;
  const auto who = shortest.ranks == planned.ranks ? "the same, cut otherwise," : shortest.ranks.to_string();
  return fmt::format("ranks     {} {} has a {} ({} a micro-batch): gap {:.2f} %\n", dealt, who, what,
                     format_seconds(shortest.cuts.longest_seconds), 100 * gap);
}

std::string stages_of(const StagesStep& step) {
  const PlannedStages& planned = *step.taken;
  const auto& found = planned.simulated.found;
  auto text = table_of(planned);
  text += fmt::format("\nstep      {}, in which stages are idle for {:.1f} % of the time\n",
                      format_seconds(planned.step_seconds()), 100 * found.bubble);
  const double gap = gap_of(planned);
  text += gap <= 0 ? fmt::format("schedule  proven: no order of these phases, in this memory, takes less ({})\n",
                                 found.bound.reason)
                   : fmt::format(
                         "schedule  no order of these phases, in this memory, takes less than {}: gap {:.2f} % ({})\n",
                         format_seconds(planned.simulated.bound_seconds()), 100 * gap, found.bound.reason);
  text += fmt::format(
      "cuts      proven: of all cuts into {} at {} none has a shorter longest {}, as operators' times add up ({} a "
      "micro-batch)\n",
      stages_name(planned), plural(static_cast<int64_t>(planned.places.problem.places.size()), "place"),
      planned.num_segments() == 1 ? "stage" : "chunk", format_seconds(planned.cuts.longest_seconds));
  text += ranks_of(step);
  text += fmt::format("beside    data parallel on {}: {}\n", plural(step.num_ranks, "rank"),
                      seconds_or_no_fit(step.data_parallel_seconds));
  return text + "\n" + picture_of(planned);
}

// With the ranks of each stage where these differ.
std::string candidate_name(const PlannedStages& planned, const StagesStep& step) {
  const auto of_ranks = planned.ranks.are_equal() ? "" : " of " + ranks_name(planned.ranks);
  return fmt::format("{}{}, {} micro-batches, {}, {}", stages_name(planned), of_ranks, planned.micro_batches,
                     name_of(planned.inside), schedule_name(planned, step));
}

// What --stages auto has compared.
std::string comparison_of(const StagesStep& step) {
  std::string text;
  size_t width = 72;
  for (const auto& candidate : step.search.candidates) {
    if (candidate.planned) width = std::max(width, candidate_name(*candidate.planned, step).size() + 1);
  }
  const auto row = [&](const std::string& name, const std::string& seconds, const std::string& bytes, bool is_taken) {
    text += fmt::format("  {:<{}}{:>12}{:>12}{}\n", name, width, seconds, bytes, is_taken ? "  taken" : "");
  };
  row("simulated", "step", "memory", false);
  if (step.one_stage) {
    const auto& taken = step.one_stage->chosen->taken();
    row("one stage, " + taken.origin, seconds_or_no_fit(step.one_stage_seconds()),
        format_bytes(step.one_stage->chosen->peak_memory_bytes), !step.taken);
  } else {
    row("one stage", "no fit", "-", false);
  }
  for (size_t i = 0; i < step.search.candidates.size(); ++i) {
    const auto& candidate = step.search.candidates[i];
    if (!candidate.planned) continue;
    const auto& planned = *candidate.planned;
    row(candidate_name(planned, step), format_seconds(planned.step_seconds()),
        format_bytes(planned.simulated.memory_bytes()), step.taken && step.search.fastest == i);
  }
  if (step.search.num_hopeless > 0) {
    text += fmt::format("not simulated, because the sum of their operators' times is longer: {}\n",
                        plural(step.search.num_hopeless, "pipeline"));
  }
  if (step.search.num_unequal > 0) {
    const auto num_tried = std::count_if(step.search.candidates.begin(), step.search.candidates.end(),
                                         [](const auto& candidate) { return !candidate.ranks.are_equal(); });
    text += fmt::format("stages with different numbers of ranks: {} estimated, {} simulated\n",
                        plural(step.search.num_unequal, "pipeline"), num_tried);
  }
  std::map<std::string, std::vector<std::string>> faults;
  for (const auto& candidate : step.search.candidates) {
    if (candidate.fault.empty()) continue;
    auto& who = faults[candidate.fault];
    auto name = compiler::name_of(candidate.ranks, candidate.micro_batches);
    if (who.empty() || who.back() != name) who.push_back(std::move(name));
  }
  for (const auto& [fault, who] : faults) text += fmt::format("no pipeline of {}: {}\n", fmt::join(who, "; "), fault);
  if (!step.search.left_out.empty()) {
    text += fmt::format("left out because time was up: {}\n", fmt::join(step.search.left_out, "; "));
  }
  return text;
}

std::string choice_of(const StagesStep& step) {
  if (step.taken) {
    return fmt::format("taken: a pipeline of {}, chosen by simulation{}\n", plural(step.taken->num_stages, "stage"),
                       step.one_stage ? "" : ": one stage does not fit");
  }
  return fmt::format("taken: one stage, chosen by simulation: no pipeline is faster by {:.0f} % or more\n",
                     100 * compiler::kWorthwhile);
}

Json json_of_stage(const PlannedStages& planned, int stage) {
  Json chunks = Json::array();
  for (int chunk = 0; chunk < planned.num_chunks(); ++chunk) {
    const auto& at = planned.simulated.chunks[static_cast<size_t>(chunk)];
    if (at.stage != stage) continue;
    chunks.push_back({{"chunk", chunk},
                      {"segment", at.segment},
                      {"first_layer", first_piece(planned, chunk).first},
                      {"last_layer", last_piece(planned, chunk).last},
                      {"forward_seconds", at.forward_seconds},
                      {"backward_seconds", at.backward_seconds},
                      {"weight_gradient_seconds", at.weight_gradient_seconds},
                      {"slot_bytes", at.slot_bytes},
                      {"slots", at.slots}});
  }
  const auto& at = planned.simulated.stages[static_cast<size_t>(stage)];
  return {{"stage", stage},
          {"first_rank", planned.ranks.first(stage)},
          {"num_ranks", planned.ranks.count(stage)},
          {"update_seconds", at.update_seconds},
          {"persistent_bytes", at.persistent_bytes},
          {"arena_bytes", at.arena_bytes},
          {"memory_bytes", at.memory_bytes()},
          {"chunks", chunks}};
}

Json json_of(const PlannedStages& planned, const std::string& schedule) {
  Json stages = Json::array();
  for (int stage = 0; stage < planned.num_stages; ++stage) stages.push_back(json_of_stage(planned, stage));
  Json cuts = Json::array();
  for (int chunk = 0; chunk + 1 < planned.num_chunks(); ++chunk) {
    const auto there = crossing(planned, chunk, false);
    const auto back = crossing(planned, chunk, true);
    cuts.push_back({{"after", last_piece(planned, chunk).last},
                    {"before", first_piece(planned, chunk + 1).first},
                    {"forward_messages", there.messages * planned.micro_batches},
                    {"forward_bytes", there.bytes * planned.micro_batches},
                    {"backward_messages", back.messages * planned.micro_batches},
                    {"backward_bytes", back.bytes * planned.micro_batches}});
  }
  // What set_stage is told: a stage, or a stage and a segment.
  Json cells = Json::object();
  for (const auto& [cell, at] : planned.cells) {
    cells[cell] = planned.num_segments() == 1 ? Json(at.stage) : Json({at.stage, at.segment});
  }
  const auto& found = planned.simulated.found;
  return {{"num_stages", planned.num_stages},
          {"num_segments", planned.num_segments()},
          {"stage_ranks", planned.ranks.counts()},
          {"micro_batches", planned.micro_batches},
          {"inside", name_of(planned.inside)},
          {"schedule", schedule},
          {"found_by", found.origin},
          {"split_backward", planned.simulated.split_backward()},
          {"step_seconds", planned.step_seconds()},
          {"bubble", found.bubble},
          {"bound_seconds", planned.simulated.bound_seconds()},
          {"bound_reason", found.bound.reason},
          {"gap", gap_of(planned)},
          {"longest_stage_seconds", planned.cuts.longest_seconds},
          {"places", planned.places.problem.places.size()},
          {"stages", stages},
          {"cuts", cuts},
          {"cells", cells},
          {"phases", pipeline::print(found.schedule)}};
}

}  // namespace

std::string stages_text(const StagesStep& step, const std::string& model) {
  std::string text;
  if (step.is_auto) {
    text = fmt::format("{} on {}, machines \"{}\"\n\n", model, plural(step.num_ranks, "rank"), step.profile.name) +
           comparison_of(step) + choice_of(step);
    if (!step.taken) return text;
    text += "\n";
  }
  return text + title_of(*step.taken, step, model) + "\n" + stages_of(step);
}

std::string stages_json(const StagesStep& step, const std::string& model) {
  Json json = {{"model", model}, {"num_ranks", step.num_ranks}, {"profile", step.profile.name}, {"rows", step.rows}};
  if (std::isfinite(step.data_parallel_seconds)) json["data_parallel_seconds"] = step.data_parallel_seconds;
  if (step.searches_ranks) {
    Json candidates = Json::array();
    for (const auto& candidate : step.search.candidates) {
      Json entry = {{"num_stages", candidate.ranks.num_stages()},
                    {"stage_ranks", candidate.ranks.counts()},
                    {"micro_batches", candidate.micro_batches}};
      if (candidate.planned) {
        entry["inside"] = name_of(candidate.planned->inside);
        entry["step_seconds"] = candidate.planned->step_seconds();
        entry["memory_bytes"] = candidate.planned->simulated.memory_bytes();
      }
      if (!candidate.fault.empty()) entry["fault"] = candidate.fault;
      candidates.push_back(std::move(entry));
    }
    if (std::isfinite(step.one_stage_seconds())) json["one_stage_seconds"] = step.one_stage_seconds();
    json["candidates"] = candidates;
    json["left_out"] = step.search.left_out;
    json["unequal_estimated"] = step.search.num_unequal;
    json["chosen_by"] = "simulation";
  }
  json["pipeline"] = step.taken ? json_of(*step.taken, step.options.schedule) : Json();
  const auto bound = step.searches_ranks && step.taken ? step.planner->deal_bound(*step.taken) : std::nullopt;
  if (bound) {
    json["pipeline"]["shortest_dealt_ranks"] = bound->shortest.ranks.counts();
    json["pipeline"]["dealt_gap"] = bound->gap();
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
