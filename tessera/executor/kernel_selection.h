// The live kernel catalogue: asks kernel registries in order, the fast ones first. Where it has a table of measured
// kernels, that decides between the candidates.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/executor/kernel_table.h"
#include "tessera/ops/kernel_catalogue.h"

namespace tessera::executor {

class KernelSelection : public ops::KernelCatalogue {
 public:
  // What to do about a request with candidates that the table does not know: take the usual kernel and note that it was
  // asked for, or measure at once.
  enum class Unknown { kNote, kMeasure };

  // Registries live as long as this, as do those of beside_device(). num_threads >= 1.
  KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads);
  // The table lives as long as this.
  KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads, KernelTable& table, Unknown unknown,
                  Clock& clock);

  // The kernels are those of a device with this name. What none of them takes is computed by the host, by a kernel of
  // the registries `of_host`, which is said once for each operator and its types; without any it is refused.
  void beside_device(std::string name, std::vector<const KernelRegistry*> of_host);

  ops::ChosenKernel choose(const KernelRequest& request) const override;
  int num_threads() const override { return num_threads_; }
  // The kernel that choose named, `on_host` or not, whatever has been measured since. Throws as choose does.
  PreparedKernel prepare(const KernelRequest& request, const std::string& name, bool on_host = false) const;

  // Measures the request's kernels and adds the result to the table.
  void measure(const KernelRequest& request) const;
  // The requests that were noted since the last call.
  std::vector<KernelRequest> take_noted() const;
  // Ends a time of measuring: gives the memory for it back, says what it took. Returns whether anything was measured.
  bool finish_measuring() const;

 private:
  struct Measuring {
    KernelTable* table = nullptr;
    Unknown unknown = Unknown::kNote;
    Clock* clock = nullptr;
    KernelTimer timer;
    std::map<std::string, KernelRequest> noted;  // by describe(request)
    int64_t begin_ns = 0;
    int64_t reported_ns = 0;
    int count = 0;
  };

  const KernelRegistry* registry_with_candidates(const KernelRequest& request) const;
  void say_host_computes(const KernelRequest& request) const;
  [[noreturn]] void throw_has_no_kernel(const KernelRequest& request) const;

  std::vector<const KernelRegistry*> registries_;
  int num_threads_;
  std::string device_;  // empty: the host
  std::vector<const KernelRegistry*> of_host_;
  mutable std::set<std::string> said_;  // of which operators
  // Null without a table.
  std::unique_ptr<Measuring> measuring_;
};

}  // namespace tessera::executor
