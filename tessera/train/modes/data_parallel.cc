#include "tessera/train/modes/one_graph.h"

namespace tessera::train {
namespace {

// Rows are split over the ranks, and all that follows from them; parameters lie whole on every rank, but for optimizer
// shards.
class DataParallel final : public OneGraph {
 public:
  using OneGraph::OneGraph;

  int batch_norm_groups() const override {
    return options_.batch_norm_statistics == BatchNormStatistics::kLocal ? context_.size() : 0;
  }
  BatchShare share_of(const data::Dataset& dataset) const override {
    if (dataset.num_shards() > 1) return {};
    return {context_.rank(), context_.size()};
  }
  bool may_be_resized() const override { return true; }
  std::string why_fixed(const data::Dataset& dataset) const override {
    if (std::string why = why_not_held_by_fewer(); !why.empty()) return why;
    if (!options_.gradients_mean) return "gradients are summed over the ranks (gradients_mean is false)";
    return rows_of_ranks(dataset);
  }
  std::string why_not_held_by_fewer() const override {
    return batch_norm_groups() > 0 ? "each rank has batch statistics of its own (batch_norm_statistics)" : "";
  }
  // The graph's loss is the mean over the global batch; the sum over ranks has a gradient that many times larger.
  double gradient_scale() const override { return options_.gradients_mean ? 1.0 : context_.size(); }
};

}  // namespace

std::unique_ptr<Mode> make_data_parallel(const ModeParts& parts) { return std::make_unique<DataParallel>(parts); }

}  // namespace tessera::train
