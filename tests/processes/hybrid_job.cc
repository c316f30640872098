// The networks of tests/equivalence/hybrid_networks.h on the ranks of a job: fails unless each gives what one device
// gives, in float64 to 1e-12 and in float32 to 1e-5.
#include "tessera/tessera.h"
#include "tests/equivalence/hybrid_networks.h"

int main(int argc, char** argv) {
  using namespace tessera;  // NOLINT
  return cluster::run(argc, argv, [](cluster::Context& context) {
    bool all_equal = true;
    for (const auto& hybrid : equivalence::hybrid_cases()) {
      for (const DType dtype : {DType::kF64, DType::kF32}) {
        const auto worst = equivalence::compare_with_one_device(context, hybrid, dtype, 4,
                                                                {.reference_kernels = dtype == DType::kF64});
        const bool equal = worst.worst() < (dtype == DType::kF64 ? 1e-12 : 1e-5);
        train::print_line(fmt::format("{} {} rank {} of {}: {} output {:.1e} losses {:.1e} parameters {:.1e}",
                                      hybrid.name, dtype, context.rank(), context.size(), equal ? "equal" : "DIFFERS",
                                      worst.output, worst.loss, worst.parameters));
        all_equal = all_equal && equal;
      }
    }
    return all_equal ? 0 : 1;
  });
}
