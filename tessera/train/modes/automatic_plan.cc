#include "tessera/train/modes/automatic_plan.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <system_error>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/compiler/choose_plan.h"
#include "tessera/train/modes/decisions.h"
#include "tessera/train/modes/measured_profile.h"

namespace tessera::train {
namespace {

// Rank 0 runs it, however long it takes; the others hear from it meanwhile, so that none gives it up. Where a rank is
// lost meanwhile, `run` is told to stop.
void run_while_others_wait(cluster::Context& context, const std::function<void(const std::atomic<bool>& stop)>& run) {
  constexpr auto kInterval = std::chrono::milliseconds(200);
  std::atomic<bool> stop = false;
  std::future<void> running;  // its end is waited for when it goes
  struct AtTheEnd {
    std::atomic<bool>& stop;
    ~AtTheEnd() { stop = true; }
  } const at_the_end{stop};
  if (context.rank() == 0) {
    try {
      running = std::async(std::launch::async, [&] { run(stop); });
    } catch (const std::system_error& reason) {
      throw_no_thread("the search for a plan", reason);
    }
  }
  int64_t is_done = 0;
  while (is_done == 0) {
    if (context.rank() == 0) is_done = running.wait_for(kInterval) == std::future_status::ready ? 1 : 0;
    context.world().broadcast(&is_done, 1, DType::kI64, 0, "waiting for rank 0's plan");
  }
}

// An error as the ranks tell it each other: its kind and its words; "" for none.
std::string error_as_text(const std::exception& error) {
  const char kind = dynamic_cast<const InvalidArgument*>(&error) != nullptr ? 'a'
                    : dynamic_cast<const IoError*>(&error) != nullptr       ? 'i'
                                                                            : 'e';
  return kind + std::string(error.what());
}

void throw_error_of(const std::string& text) {
  if (text.empty()) return;
  const auto words = fmt::format("auto_parallel: {}", text.substr(1));
  if (text[0] == 'a') throw InvalidArgument(words);
  if (text[0] == 'i') throw IoError(words);
  throw Error(words);
}

std::string search_for_plan(cluster::Context& context, const ir::Graph& graph, const AutomaticPlanOptions& options,
                            const compiler::MachineProfile& profile) {
  FileSystem& files = context.file_system();
  std::string json;
  if (!options.load_file.empty()) {
    json = read_settings(files, options.load_file, "plan");
    const auto record = compiler::parse_plan_record(json, options.load_file);
    if (record.mesh.size() != context.size()) {
      throw InvalidArgument("{} is a plan for {}, there are {}", options.load_file, plural(record.mesh.size(), "rank"),
                            context.size());
    }
    log_info("auto_parallel: the plan of {}, on {}", options.load_file, record.mesh.to_string());
    const auto difference = compiler::difference_text(graph, record);
    if (!difference.empty()) log_warning("auto_parallel: {} {}", options.load_file, difference);
  } else if (options.planner) {
    json = compiler::to_json(options.planner(graph));
  } else {
    std::vector<int> ranks(static_cast<size_t>(context.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto chosen = compiler::choose_plan(graph, ranks, profile, options.search);
    log_info("auto_parallel: {}", chosen.summary(graph));
    if (!chosen.warning.empty()) log_warning("auto_parallel: {}", chosen.warning);
    json = compiler::to_json(chosen.record);
  }
  if (!options.save_file.empty()) files.write_atomically(options.save_file, json, 0666);
  return json;
}

// What a search decides of: the step, and how it is searched for.
std::string subject_of(const std::string& graph_hash, int num_ranks, const AutomaticPlanOptions& options) {
  const auto& search = options.search;
  return fmt::format("plan of {} for {} ranks by {} within {}, {} rounds, {} s, profile {}", graph_hash, num_ranks,
                     static_cast<int>(search.algorithm), search.memory_limit_bytes, search.rounds,
                     search.timeout_seconds, printable(options.profile ? options.profile->name : ""));
}

}  // namespace

std::shared_ptr<const compiler::PlanRecord> plan_automatically(cluster::Context& context, const ir::Graph& graph,
                                                               const AutomaticPlanOptions& options) {
  const bool is_given = options.planner || !options.load_file.empty();
  const ir::Graph simplified = compiler::simplify(graph);
  // Another measurement, or a search in limited time, might choose another one.
  const std::string hash = compiler::hash_of(simplified);
  const std::string subject = subject_of(hash, context.size(), options);
  std::string json = is_given ? "" : find_decision(context, subject);
  const bool is_known = !json.empty();
  const auto profile = options.profile || is_given || is_known ? options.profile.value_or(compiler::example_profile())
                                                               : measure_briefly(context, graph);
  std::string failure;
  const auto search = [&](const std::atomic<bool>& stop) {
    try {
      if (is_known) return;
      AutomaticPlanOptions stoppable = options;
      stoppable.search.stop = &stop;
      json = search_for_plan(context, simplified, stoppable, profile);
    } catch (const std::exception& error) {
      failure = error_as_text(error);
    }
  };
  run_while_others_wait(context, search);
  throw_error_of(broadcast_text(context, failure, "taking rank 0's plan"));
  json = broadcast_text(context, json, "taking rank 0's plan");
  if (!is_known && !is_given) keep_decision(context, subject, json);
  auto record = std::make_shared<const compiler::PlanRecord>(compiler::parse_plan_record(json, "rank 0's plan"));
  // A rank with another network would wait for ever.
  const std::string first = broadcast_text(context, hash, "comparing the ranks' graphs");
  int64_t differs = hash == first ? context.size() : context.rank();
  context.world().all_reduce(&differs, 1, DType::kI64, comm::ReduceOp::kMin, "comparing the ranks' graphs");
  if (differs < context.size()) {
    throw InvalidArgument(
        "auto_parallel: the training step of rank {} is not that of rank 0: networks, batches and "
        "options must be equal on all ranks",
        differs);
  }
  return record;
}

}  // namespace tessera::train
