// What the kernels of conv2d and its two gradients share: which operand is which, and the attributes read.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

enum class Pass { kForward, kGradInput, kGradWeight };
// The operator of each.
inline constexpr std::pair<const char*, Pass> kConvolutionOps[] = {
    {"conv2d", Pass::kForward}, {"conv2d_grad_input", Pass::kGradInput}, {"conv2d_grad_weight", Pass::kGradWeight}};

// Which of the node's values is the image that the convolution reads, the image that it makes, and the weight.
struct Role {
  bool is_output = false;
  size_t index = 0;
  template <typename Source>
  const TensorView& of(const Source& source) const {
    return is_output ? source.outputs[index] : source.inputs[index];
  }
};
struct Roles {
  Role source, weight, destination;
};
Roles roles_of(Pass pass);

// The arrays are indexed by dim of the image, height first.
struct Geometry {
  Ints strides;
  Ints dilation;  // 1: the taps are neighbours
  Ints padding_before, padding_after;
  int64_t groups = 1;
};
Geometry geometry_of(const Attributes& attributes);

// The view of an image with the strides of dims of size 1 set to those of the layout that the others say:
// channels-last, where they say nothing.
TensorView canonical_image(TensorView view);

// The candidates of a family, one for each of its variants: "family.op" and the variant's suffix. `Kernel` has
// make(pass, request, variant), which is null where it does not take the request, run(args) and scratch_bytes().
template <typename Kernel, typename Variants>
std::vector<KernelCandidate> candidates_of_variants(const std::string& family, Pass pass, const KernelRequest& request,
                                                    const Variants& variants) {
  std::vector<KernelCandidate> found;
  for (const auto& variant : variants) {
    const std::string name = family + "." + request.op + variant.suffix;
    found.push_back({name, [pass, &request, &variant, name]() -> std::optional<PreparedKernel> {
                       const auto made = Kernel::make(pass, request, variant);
                       if (!made) return std::nullopt;
                       return PreparedKernel{.name = name,
                                             .run = [made](const KernelArgs& args) { made->run(args); },
                                             .scratch_bytes = made->scratch_bytes()};
                     }});
  }
  return found;
}
// Registers them for each operator. The variants must outlive the registry.
template <typename Kernel, typename Variants>
void add_variants(const std::string& family, const Variants& variants, KernelRegistry& registry) {
  for (const auto& [op, pass] : kConvolutionOps) {
    registry.add_candidates(op, [family, pass = pass, &variants](const KernelRequest& request) {
      return candidates_of_variants<Kernel>(family, pass, request, variants);
    });
  }
}

}  // namespace tessera::kernels::cpu
