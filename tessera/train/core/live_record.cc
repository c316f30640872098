#include "tessera/train/core/live_record.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/session/session.h"
#include "tessera/train/core/process_memory.h"
#include "tessera/train/options/pipeline_options.h"

namespace tessera::train {
namespace {

constexpr int64_t kPauseNs = 1'000'000'000;

}  // namespace

std::string LiveRecord::plan_words() const {
  std::string words;
  const auto add = [&words](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  if (const auto plan = core_.mode->plan()) {
    add(fmt::format("found for the mesh {}", plan->mesh.to_string()));
    if (plan->seconds > 0) add(fmt::format("a step predicted to take {}", format_seconds(plan->seconds)));
  }
  const ModelOptions& options = core_.options;
  const auto& pipeline = options.pipeline;
  if (const int stages = num_stages(pipeline); stages > 1) add(plural(stages, "stage"));
  if (pipeline.micro_batches > 1) add(plural(pipeline.micro_batches, "micro-batch"));
  if (options.parallel_optimizer) add("optimizer shards");
  if (options.accumulates()) {
    add(fmt::format("gradients of {} batches a step", options.gradient_accumulation_steps));
  }
  if (const int servers = core_.context.num_servers(); servers > 0) add(plural(servers, "server"));
  return words;
}

void LiveRecord::begin_figures(const LiveStep& step) {
  std::vector<std::string> parameters;
  for (const nn::Parameter* parameter : core_.cells.parameters()) parameters.push_back(parameter->full_name());
  rates_.emplace(core_.session(), parameters);
  figures_ = {.epoch = step.epoch,
              .num_epochs = step.num_epochs,
              .step = step.step,
              .steps_per_epoch = step.steps_per_epoch,
              .mode = std::string(to_string(core_.options.parallel_mode)),
              .plan = plan_words()};
  has_begun_ = true;
  marked_ns_ = now_ns();
  rows_ = 0;
}

void LiveRecord::begin(const LiveStep& before) {
  if (!core_.context.wants_figures()) return;
  begin_figures(before);
  tell(now_ns());
  told_ns_ = 0;  // the first step is told at once
}

void LiveRecord::step_end(const LiveStep& step, const LiveCheckpoint& newest) {
  if (!core_.context.wants_figures()) return;
  if (!has_begun_) begin_figures(step);
  rows_ += step.rows;
  figures_.epoch = step.epoch;
  figures_.step = step.step;
  figures_.loss = step.loss;
  const int64_t now = now_ns();
  const bool has_saved = figures_.checkpoint_step != newest.step || figures_.checkpoint != newest.path;
  if (has_saved && !newest.path.empty()) {
    figures_.checkpoint = newest.path;
    figures_.checkpoint_step = newest.step;
  }
  if (told_ns_ != 0 && now - told_ns_ < kPauseNs) return;
  const int64_t duration_ns = std::max<int64_t>(now - std::exchange(marked_ns_, now), 1);
  const double per_second = static_cast<double>(std::exchange(rows_, 0)) * 1e9 / static_cast<double>(duration_ns);
  figures_.rows_per_second = std::round(per_second * 1000) / 1000;
  figures_.learning_rate = rates_->read(core_.session());
  tell(now);
}

void LiveRecord::end(const char* how, const LiveCheckpoint& newest) {
  if (!core_.context.wants_figures() || !std::exchange(has_begun_, false)) return;
  figures_.ended = how;
  if (!newest.path.empty()) {
    figures_.checkpoint = newest.path;
    figures_.checkpoint_step = newest.step;
  }
  tell(now_ns());
}

void LiveRecord::tell(int64_t now) {
  told_ns_ = now;
  figures_.resident_bytes = resident_bytes_of_process();
  figures_.arena_bytes = core_.session().arena_bytes();
  core_.context.report_figures(figures_);
}

}  // namespace tessera::train
