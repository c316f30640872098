#include "tessera/executor/kernel_selection.h"

#include <fmt/ranges.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/processes/no_memory.h"

namespace tessera::executor {
namespace {

constexpr int64_t kReportEveryNs = 2'000'000'000;

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Of the first registry that takes the request.
std::optional<PreparedKernel> find_kernel(const std::vector<const KernelRegistry*>& registries,
                                          const KernelRequest& request, const std::string& name) {
  for (const KernelRegistry* registry : registries) {
    if (auto kernel = registry->find(request, name)) return kernel;
  }
  return std::nullopt;
}

// `matmul on (f32[2,3], f32[3,4]) {}`
std::string words_of(const KernelRequest& request) {
  std::vector<std::string> types;
  for (const auto& input : request.inputs) types.push_back(input.type().to_string());
  return fmt::format("{} on ({}) {}", request.op, fmt::join(types, ", "), request.attributes.to_string());
}

}  // namespace

KernelSelection::KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads)
    : registries_(std::move(registries)), num_threads_(num_threads) {}

KernelSelection::KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads, KernelTable& table,
                                 Unknown unknown, Clock& clock)
    : registries_(std::move(registries)),
      num_threads_(num_threads),
      measuring_(new Measuring{.table = &table, .unknown = unknown, .clock = &clock, .timer = KernelTimer(clock)}) {}

// Candidates are those of the first registry that has any.
const KernelRegistry* KernelSelection::registry_with_candidates(const KernelRequest& request) const {
  for (const KernelRegistry* registry : registries_) {
    if (!registry->candidates(request).empty()) return registry;
  }
  return nullptr;
}

ops::ChosenKernel KernelSelection::choose(const KernelRequest& request) const {
  std::string name;
  if (measuring_) {
    const auto* known = measuring_->table->find(request);
    if (known == nullptr && registry_with_candidates(request) != nullptr) {
      if (measuring_->unknown == Unknown::kMeasure) {
        measure(request);
        known = measuring_->table->find(request);
      } else {
        measuring_->noted.emplace(describe(request), request);
      }
    }
    if (known != nullptr) name = known->chosen;
  }
  if (auto kernel = find_kernel(registries_, request, name)) {
    return {std::move(kernel->name), kernel->scratch_bytes, std::move(kernel->in_place)};
  }
  if (auto kernel = find_kernel(of_host_, request, "")) {
    say_host_computes(request);
    return {std::move(kernel->name), kernel->scratch_bytes, std::move(kernel->in_place), /*on_host=*/true};
  }
  throw_has_no_kernel(request);
}

PreparedKernel KernelSelection::prepare(const KernelRequest& request, const std::string& name, bool on_host) const {
  if (auto kernel = find_kernel(on_host ? of_host_ : registries_, request, name)) return std::move(*kernel);
  throw_has_no_kernel(request);
}

void KernelSelection::beside_device(std::string name, std::vector<const KernelRegistry*> of_host) {
  device_ = std::move(name);
  of_host_ = std::move(of_host);
}

void KernelSelection::say_host_computes(const KernelRequest& request) const {
  std::vector<std::string> types;
  for (const auto& view : request.inputs.empty() ? request.outputs : request.inputs) {
    types.emplace_back(to_string(view.dtype));
  }
  const auto name = fmt::format("{} of {}", request.op, fmt::join(types, ", "));
  if (!said_.insert(name).second) return;
  log_warning("{} has no kernel for {}: the host computes it, and what it reads and makes is copied in every step",
              device_, name);
}

void KernelSelection::throw_has_no_kernel(const KernelRequest& request) const {
  const auto wanted = words_of(request);
  if (device_.empty()) throw InvalidArgument("no kernel of this build computes {}", wanted);
  if (!of_host_.empty()) {
    throw InvalidArgument("no kernel of {}, nor of the host beside it, computes {}", device_, wanted);
  }
  throw InvalidArgument(
      "no kernel of {} computes {}; cpu_fallback, or TESSERA_CPU_FALLBACK=1, has the host compute what the device has "
      "no kernel for",
      device_, wanted);
}

void KernelSelection::measure(const KernelRequest& request) const {
  Measuring& m = *measuring_;
  if (m.count == 0) m.begin_ns = m.reported_ns = m.clock->monotonic_ns();
  const KernelRegistry* registry = registry_with_candidates(request);
  try {
    m.table->add(registry != nullptr ? m.timer.measure(*registry, request) : KernelMeasurement{.request = request});
  } catch (const std::bad_alloc& error) {
    throw InvalidArgument("measuring kernels of {}: {}", words_of(request), no_memory_text(error));
  }
  ++m.count;
  const int64_t now = m.clock->monotonic_ns();
  if (now - m.reported_ns < kReportEveryNs) return;
  m.reported_ns = now;
  log_info("measuring which kernels are fastest: {} operators in {:.1f} s so far", m.count, seconds(now - m.begin_ns));
}

std::vector<KernelRequest> KernelSelection::take_noted() const {
  std::vector<KernelRequest> requests;
  for (auto& [key, request] : measuring_->noted) requests.push_back(std::move(request));
  measuring_->noted.clear();
  return requests;
}

bool KernelSelection::finish_measuring() const {
  Measuring& m = *measuring_;
  if (m.count == 0) return false;
  log_info("measured which kernels are fastest for {} operators in {:.1f} s", m.count,
           seconds(m.clock->monotonic_ns() - m.begin_ns));
  m.count = 0;
  m.timer.release();
  return true;
}

}  // namespace tessera::executor
