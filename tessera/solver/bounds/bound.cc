#include "tessera/solver/bounds/bound.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/integers.h"
#include "tessera/solver/bounds/contract.h"
#include "tessera/solver/bounds/needless.h"
#include "tessera/solver/bounds/partners.h"

namespace tessera::solver {
namespace {

constexpr int kPassesPerPrice = 2;
constexpr int kMostPasses = 50;  // of a round
constexpr int kPassesPerLook = 200;
constexpr double kStalled = 0.02;  // of the gap: a gain that is not worth more rounds
constexpr double kManyOut = 0.05;  // of the choices: worth a new graph
constexpr PartnerLimits kLimits{.choices = 2000, .pairs = 4'000'000};

}  // namespace

Bound::Bound(const Instance& instance, const Deadline& deadline)
    : instance_(instance),
      deadline_(deadline),
      relaxation_(instance),
      dual_(std::make_unique<Dual>(*relaxation_.graph)),
      prices_(instance),
      best_prices_(prices_.values()) {}

void Bound::set_prices(std::vector<double> values) {
  std::vector<double> before(as_index(instance_.num_nodes()));
  for (int n = 0; n < instance_.num_nodes(); ++n) before[as_index(n)] = prices_.of(n);
  prices_.set(std::move(values));
  std::vector<double> more;
  for (size_t g = 0; g < relaxation_.members.size(); ++g) {
    const auto& members = relaxation_.members[g];
    more.assign(as_index(relaxation_.graph->num_choices(static_cast<int>(g))), 0.0);
    bool any = false;
    for (size_t m = 0; m < members.size(); ++m) {
      const double change = prices_.of(members[m]) - before[as_index(members[m])];
      if (change == 0) continue;
      any = true;
      const auto usages = instance_.usages_of(members[m]);
      for (size_t i = 0; i < more.size(); ++i) {
        more[i] += change * static_cast<double>(usages[as_index(relaxation_.choices[g][i * members.size() + m])]);
      }
    }
    if (any) dual_->add(static_cast<int>(g), more.data());
  }
  dual_->set_constant(-prices_.of_limit());
}

void Bound::pass(double known) {
  dual_->pass(known);
  if (std::min(dual_->bound(), known) <= value_) return;
  value_ = std::min(dual_->bound(), known);
  best_prices_ = prices_.values();
}

void Bound::price(const std::vector<double>& prices, int passes) {
  set_prices(prices);
  for (int i = 0; i < passes && !deadline_.is_over(); ++i) pass(kForbidden);
}

void Bound::raise(double known, int64_t work) {
  const auto pairs = static_cast<int64_t>(relaxation_.graph->num_pairs + relaxation_.graph->cost.size());
  const auto passes = std::clamp<int64_t>(work / (2 * pairs + 1), 1, kMostPasses);
  for (int64_t i = 0; i < passes && value_ < known && !deadline_.is_over(); ++i) {
    pass(known);
    if (passes_++ % kPassesPerPrice == 0 && instance_.num_points > 0) {
      set_prices(prices_.next(choices(), dual_->bound(), known));
    }
  }
  if (value_ >= known || deadline_.is_over()) return;
  const auto& out = dual_->is_out();
  const auto num_out = std::count(out.begin(), out.end(), true);
  const bool looks = passes_ - passes_before_ >= kPassesPerLook;
  const bool stalls = value_ - value_before_ < kStalled * (known - value_) && prices_.is_settled();
  const bool joins = looks && known != kForbidden && stalls;
  if (looks) {
    passes_before_ = passes_;
    value_before_ = value_;
  }
  if (joins || static_cast<double>(num_out) > kManyOut * static_cast<double>(out.size())) shrink(known, joins);
}

// Leaves out what was marked and, where `joins`, makes groups larger.
void Bound::shrink(double known, bool joins) {
  const double slack = known == kForbidden ? 0 : 1e-9 * std::abs(known);  // sums of doubles are not exact
  Contraction how{.is_out = dual_->is_out(), .partner = {}, .most = known - dual_->sum_of_least() + slack};
  while (!deadline_.is_over()) {
    if (!mark_needless(instance_, relaxation_, how.is_out)) {
      value_ = known;
      return;
    }
    how.partner.assign(relaxation_.members.size(), -1);
    if (joins) how.partner = choose_partners(relaxation_, *dual_, how.is_out, how.most, kLimits);
    if (deadline_.is_over()) return;
    if (!joins && std::find(how.is_out.begin(), how.is_out.end(), true) == how.is_out.end()) break;
    auto made = contract(relaxation_, *dual_, how);
    if (made.is_empty) {
      value_ = known;
      return;
    }
    const double constant = dual_->constant();
    dual_.reset();
    relaxation_ = std::move(made.relaxation);
    dual_ = std::make_unique<Dual>(*relaxation_.graph, std::move(made.state));
    dual_->set_constant(constant);
    if (joins) prices_.restart();
    // Pairs that became one choice may be impossible.
    joins = false;
    how.is_out.assign(relaxation_.graph->cost.size(), false);
  }
  pass(known);
}

}  // namespace tessera::solver
