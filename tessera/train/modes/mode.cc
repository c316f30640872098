#include "tessera/train/modes/mode.h"

#include <array>

#include "tessera/train/modes/mode_options.h"

namespace tessera::train {

double Mode::mean_loss(const TensorView& loss) const {
  if (loss.num_elements() == 1 && loss.dtype == DType::kF32) return static_cast<double>(*loss.as<float>());
  const auto values = Tensor::copy_of(loss).to_doubles();
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::unique_ptr<session::Executable> Mode::compile(session::Session& session, const ir::Graph& graph,
                                                   const InputSpecs&) const {
  return session.compile(graph, mesh(), {}, {.strategies = false});
}

std::unique_ptr<session::Executable> Mode::compile_prediction(session::Session& session, const ir::Graph& graph,
                                                              bool) const {
  return session.compile(graph, mesh(), {}, {.strategies = false});
}

std::unique_ptr<Mode> make_mode(const ModeParts& parts) {
  if (parts.context.size() == 1) return make_stand_alone(parts);
  // By ParallelMode.
  constexpr auto kMakers = std::to_array(
      {make_stand_alone, make_data_parallel, make_hybrid, make_semi_automatic, make_automatic, make_pipeline});
  static_assert(kMakers.size() == kNumParallelModes);
  return kMakers[static_cast<size_t>(working_mode(parts.options))](parts);
}

}  // namespace tessera::train
