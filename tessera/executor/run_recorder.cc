#include "tessera/executor/run_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::executor {

using ir::Schedule;
using ir::Step;
using ir::StepKind;
using timeline::SpanKind;
using timeline::SpanName;

namespace {

std::vector<Type> types_of_values(const Schedule& schedule, const std::vector<int>& values) {
  std::vector<Type> types;
  for (const int v : values) types.push_back(schedule.values[static_cast<size_t>(v)].type);
  return types;
}

int64_t bytes_of_types(const std::vector<Type>& types) {
  int64_t sum = 0;
  for (const Type& type : types) sum += type.size_bytes();
  return sum;
}

std::string floating_type(const std::vector<Type>& inputs, const std::vector<Type>& outputs) {
  for (const auto* types : {&inputs, &outputs}) {
    for (const Type& type : *types) {
      if (is_floating(type.dtype)) return to_string(type.dtype);
    }
  }
  return "";
}

std::string words_of(const Step& step) {
  return step.source.empty() ? step.op : fmt::format("{} \"{}\"", step.op, step.source);
}

// Whether each member's result needs what all members have.
bool all_meet(const ops::CollectiveDef& collective, const std::vector<Type>& inputs, const std::vector<Type>& outputs) {
  using Parts = ops::CollectiveDef::Parts;
  const bool has_all = collective.gives_one && (collective.reduces || collective.parts == Parts::kJoined);
  const bool has_its_part = collective.reduces && collective.parts == Parts::kCut;
  if (!has_all && !has_its_part) return false;
  const auto has_elements = [](const Type& type) { return type.size_bytes() > 0; };
  return std::ranges::all_of(inputs, has_elements) && std::ranges::all_of(outputs, has_elements);
}

SpanName name_of_compute(const Schedule& schedule, const Step& step) {
  const auto inputs = types_of_values(schedule, step.inputs);
  const auto outputs = types_of_values(schedule, step.outputs);
  SpanName name{.kind = step.kind == StepKind::kCopy ? SpanKind::kCopy : SpanKind::kOperator, .text = words_of(step)};
  name.source = step.source;
  name.kernel = step.kernel;
  name.dtype = floating_type(inputs, outputs);
  name.bytes = bytes_of_types(inputs) + bytes_of_types(outputs);
  if (step.kind == StepKind::kCompute) {
    const auto cost = ops::cost_of(ops::OpRegistry::instance().get(step.op), step.attributes, inputs, outputs);
    name.flops = cost.flops;
    name.bytes = static_cast<int64_t>(cost.bytes);
  }
  return name;
}

SpanName name_of_collective(const Schedule& schedule, const Step& step, int number) {
  auto inputs = types_of_values(schedule, step.inputs);
  const auto outputs = types_of_values(schedule, step.outputs);
  // Behind the operands there may be a second buffer.
  if (inputs.size() > outputs.size()) inputs.resize(outputs.size());
  SpanName name{.kind = SpanKind::kCollective, .text = words_of(step)};
  name.source = step.source;
  name.dtype = floating_type(inputs, outputs);
  name.bytes = std::max(bytes_of_types(inputs), bytes_of_types(outputs));
  for (const int64_t rank : step.attributes.get_ints("ranks")) name.ranks.push_back(static_cast<int>(rank));
  name.lane = static_cast<int>(ir::lane_of(step.attributes));
  name.number = number;
  name.meets = all_meet(*ops::collective_of(step.op), inputs, outputs);
  return name;
}

// Whether a device does the collective by itself: in its own memory.
bool is_of_device(const Schedule& schedule, const Step& start) {
  const int value = start.inputs.empty() ? start.outputs[0] : start.inputs[0];
  return schedule.values[static_cast<size_t>(value)].space != ir::MemorySpace::kHost;
}

const char* title_of_lane(int64_t lane) {
  return lane == ir::kAwaitedLane ? "collectives that computing waits for" : "collectives";
}

}  // namespace

void RecordedCollectives::begin_run(timeline::TimelineRecorder& recorder, int64_t step, uint32_t run) {
  step_ = step;
  run_ = run;
  recorder_.store(&recorder, std::memory_order_release);
}

void RecordedCollectives::set_step(size_t number, uint32_t name, timeline::SpanBuffer& lane) {
  names_[number] = name;
  lanes_[number] = &lane;
}

void RecordedCollectives::call(size_t number, const std::function<void()>& collective) const {
  const auto* recorder = recorder_.load(std::memory_order_acquire);
  if (recorder == nullptr || !recorder->is_on()) return collective();
  class Ends {
   public:
    Ends(const timeline::TimelineRecorder& recorder, timeline::SpanBuffer& lane, const timeline::TimedSpan& span)
        : recorder_(recorder), lane_(lane), span_(span) {}
    ~Ends() {
      span_.end_ns = recorder_.now_ns();
      lane_.add(span_);
    }
    Ends(const Ends&) = delete;
    Ends& operator=(const Ends&) = delete;

   private:
    const timeline::TimelineRecorder& recorder_;
    timeline::SpanBuffer& lane_;
    timeline::TimedSpan span_;
  };
  const Ends ends(*recorder, *lanes_[number],
                  {.begin_ns = recorder->now_ns(), .step = step_, .run = run_, .name = names_[number]});
  collective();
}

RunRecorder::RunRecorder(const Schedule& schedule, timeline::TimelineRecorder& recorder,
                         std::shared_ptr<RecordedCollectives> collectives, Device* device, Queue& queue)
    : schedule_(schedule), recorder_(recorder), collectives_(std::move(collectives)) {
  const auto add = [&](SpanName name, const std::string& line) {
    name.line = line;
    name.graph = schedule.name.empty() ? "a graph" : schedule.name;
    return recorder_.add_name(name);
  };
  run_name_ = add({.kind = SpanKind::kRun, .text = "run of " + schedule.name}, "");
  std::map<std::pair<Ints, int64_t>, int> numbers;  // of collectives, by ranks and lane
  std::vector<uint32_t> of_device(schedule.steps.size());
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    switch (step.kind) {
      case StepKind::kCompute:
      case StepKind::kCopy: names_.push_back(add(name_of_compute(schedule, step), step.line)); break;
      case StepKind::kStart: {
        const int64_t lane = ir::lane_of(step.attributes);
        const int number = numbers[{step.attributes.get_ints("ranks"), lane}]++;
        SpanName collective = name_of_collective(schedule, step, number);
        if (device != nullptr && is_of_device(schedule, step)) {
          // Devices tell its time to microseconds: a short one may seem to end before another rank has begun it.
          collective.meets = false;
          of_device[s] = add(std::move(collective), step.line);
        } else {
          collectives_->set_step(s, add(std::move(collective), step.line), recorder_.lane(title_of_lane(lane)));
        }
        names_.push_back(add({.kind = SpanKind::kStart, .text = "start of " + words_of(step)}, step.line));
        break;
      }
      case StepKind::kWait: {
        const Step& started = schedule.steps[static_cast<size_t>(step.joins)];
        SpanName name{.kind = SpanKind::kWait, .text = "wait for " + words_of(started)};
        name.source = started.source;
        names_.push_back(add(std::move(name), started.line));
        break;
      }
      case StepKind::kCheckFinite:
        names_.push_back(add({.kind = SpanKind::kCheck, .text = "check of the loss"}, step.line));
        break;
    }
    // A device may also be given collectives, together with other steps.
    const bool is_given = device != nullptr || step.kind == StepKind::kCompute || step.kind == StepKind::kCopy;
    together_.push_back(
        is_given ? add({.kind = SpanKind::kStart, .text = fmt::format("steps {} and on, for the device", s)}, step.line)
                 : names_.back());
  }
  spans_.reserve(schedule.steps.size() + 2);
  if (device != nullptr) look_at_device(*device, queue, std::move(of_device));
}

void RunRecorder::look_at_device(Device& device, Queue& queue, std::vector<uint32_t> collectives) {
  std::vector<std::unique_ptr<Event>> events;
  for (size_t i = 0; i < 2 * schedule_.steps.size(); ++i) {
    auto event = device.make_timed_event();
    if (event == nullptr) return;
    events.push_back(std::move(event));
  }
  on_device_.queue = &queue;
  on_device_.lane = &recorder_.lane(fmt::format("device {} stream compute", device.name()));
  on_device_.events = std::move(events);
  for (size_t s = 0; s < schedule_.steps.size(); ++s) {
    const Step& step = schedule_.steps[s];
    const bool is_given = step.kind == StepKind::kCompute || step.kind == StepKind::kCopy;
    SpanName name = is_given ? name_of_compute(schedule_, step) : SpanName{};
    name.kind = SpanKind::kDevice;
    name.line = step.line;
    name.graph = schedule_.name.empty() ? "a graph" : schedule_.name;
    on_device_.names.push_back(is_given ? recorder_.add_name(name) : 0);
    const SpanName together{.kind = SpanKind::kDevice,
                            .text = fmt::format("steps {} and on{}", s, timeline::kAsOne),
                            .line = step.line,
                            .graph = name.graph};
    on_device_.together.push_back(recorder_.add_name(together));
  }
  if (std::ranges::any_of(collectives, [](uint32_t name) { return name != 0; })) {
    on_device_.collectives_lane = &recorder_.lane(fmt::format("device {} stream collectives", device.name()));
  }
  on_device_.collectives = std::move(collectives);
  on_device_.done.reserve(schedule_.steps.size());
  on_device_.given.reserve(schedule_.steps.size());
  on_device_.spans.reserve(schedule_.steps.size());
}

RunRecorder::Run::Run(RunRecorder& of)
    : of_(of), step_(of.recorder_.step()), run_(of.recorder_.count_run(of.schedule_.name)) {
  of_.spans_.clear();
  of_.on_device_.given.clear();
  of_.on_device_.done.clear();
  of_.collectives_->begin_run(of_.recorder_, step_, run_);
  began_ns_ = now_ns_ = of_.recorder_.now_ns();
}

RunRecorder::Run::~Run() {
  of_.spans_.push_back(
      {.begin_ns = began_ns_, .end_ns = of_.recorder_.now_ns(), .step = step_, .run = run_, .name = of_.run_name_});
  of_.recorder_.add_to_main(of_.spans_);
}

void RunRecorder::Run::did_collective(size_t number, const Event& begin, const Event& end) {
  OnDevice& device = of_.on_device_;
  if (device.collectives_lane != nullptr) device.done.push_back({device.collectives[number], &begin, &end});
}

void RunRecorder::Run::waited() {
  add(static_cast<uint32_t>(SpanKind::kWait));
  add_device_spans();
}

void RunRecorder::Run::gives() {
  OnDevice& device = of_.on_device_;
  if (device.queue != nullptr) device.queue->record(*device.events[2 * device.given.size()]);
}

void RunRecorder::Run::end_given(const std::vector<uint32_t>& names, size_t number) {
  OnDevice& device = of_.on_device_;
  if (device.queue == nullptr) return;
  device.queue->record(*device.events[2 * device.given.size() + 1]);
  device.given.push_back(names[number]);
}

// The device has come to the last event when the host has heard of it, or a little before: that brings its clock and
// the host's together, and shows its work that much too late.
void RunRecorder::Run::add_device_spans() {
  OnDevice& device = of_.on_device_;
  const Event* last = device.given.empty() ? nullptr : device.events[2 * device.given.size() - 1].get();
  for (const TimedCollective& collective : device.done) {
    if (last == nullptr || collective.end->nanoseconds_since(*last) > 0) last = collective.end;
  }
  if (last == nullptr) return;
  int64_t free_ns = 0;
  const auto add_span = [&](uint32_t name, const Event& begin, const Event& end) {
    timeline::TimedSpan span{.step = step_, .run = run_, .name = name};
    span.begin_ns = std::max(now_ns_ - last->nanoseconds_since(begin), free_ns);
    span.end_ns = std::max(now_ns_ - last->nanoseconds_since(end), span.begin_ns);
    free_ns = span.end_ns;
    device.spans.push_back(span);
  };
  device.spans.clear();
  free_ns = began_ns_;
  for (size_t i = 0; i < device.given.size(); ++i) {
    add_span(device.given[i], *device.events[2 * i], *device.events[2 * i + 1]);
  }
  device.lane->add_all(device.spans);
  if (device.done.empty()) return;
  device.spans.clear();
  free_ns = began_ns_;
  for (const TimedCollective& collective : device.done) add_span(collective.name, *collective.begin, *collective.end);
  device.collectives_lane->add_all(device.spans);
}

void RunRecorder::Run::add(uint32_t name) {
  const int64_t end_ns = of_.recorder_.now_ns();
  of_.spans_.push_back({.begin_ns = now_ns_, .end_ns = end_ns, .step = step_, .run = run_, .name = name});
  now_ns_ = end_ns;
}

}  // namespace tessera::executor
