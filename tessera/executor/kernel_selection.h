// The live kernel catalogue: asks kernel registries in order, the fast ones first.
#pragma once

#include <vector>

#include "tessera/ops/kernel_catalogue.h"

namespace tessera::executor {

class KernelSelection : public ops::KernelCatalogue {
 public:
  // Registries live as long as this. num_threads >= 1.
  KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads);

  ops::KernelChoice choose(const KernelRequest& request) const override;
  int num_threads() const override { return num_threads_; }
  // The kernel itself. Throws as choose does.
  PreparedKernel prepare(const KernelRequest& request) const;

 private:
  std::vector<const KernelRegistry*> registries_;
  int num_threads_;
};

}  // namespace tessera::executor
