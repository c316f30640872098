#include "tessera/train/batches.h"

#include "tessera/base/error.h"

namespace tessera::train {

InputSpecs input_specs(const data::Dataset& dataset, int64_t global_rows) {
  InputSpecs specs;
  for (const auto& column : dataset.columns()) {
    Type type = column.type;
    if (type.shape.ndim() == 0) {
      throw InvalidArgument("column \"{}\" is {}: the data set must be batched before it is trained on", column.name,
                            type);
    }
    type.shape[0] = global_rows;
    specs.push_back({column.name, type});
  }
  return specs;
}

data::BatchIterator batches_of(const data::Dataset& dataset, const Mode& mode, data::Position start, int64_t num_epochs,
                               const TrainOptions& options, const session::Executable& executable,
                               timeline::TimelineRecorder* recorder) {
  const auto share = mode.share_of(dataset);
  data::IterateOptions iterate{.start = start,
                               .num_epochs = num_epochs,
                               .part = share.index,
                               .num_parts = share.count,
                               .num_workers = options.num_workers,
                               .keeps_state = true,
                               .recorder = recorder};
  const auto& schedule = executable.compiled().schedule;
  for (const auto& [name, v] : schedule.inputs) {
    const auto& value = schedule.values[static_cast<size_t>(v)];
    if (value.type.shape.ndim() == 4 && !is_dense(value.type.shape, value.strides)) iterate.channels_last = true;
  }
  return dataset.batches(iterate);
}

BatchPlace WholeBatches::place(session::Executable& executable, const InputSpecs& inputs, bool has_own_rows) {
  BatchPlace place;
  for (const auto& input : inputs) {
    if (has_own_rows) {
      add_own_rows(place, input, executable.places_of_own_rows(input.name));
      continue;
    }
    auto& whole = memory_[fmt::format("{} {}", input.name, input.type)];
    if (!(whole.type() == input.type)) whole = Tensor(input.type);
    place.written.push_back(whole.view());
    place.add_piece(executable, input.name, whole.view());
  }
  return place;
}

void WholeBatches::add_own_rows(BatchPlace& place, const session::InputSpec& input,
                                const std::vector<TensorView>& places) {
  if (places.size() == 1) {
    place.written.push_back(places[0]);
    return;
  }
  const int64_t rows = places.at(0).shape[0];
  Type type = input.type;
  type.shape[0] = rows * static_cast<int64_t>(places.size());
  auto& own = memory_[fmt::format("{} {}", input.name, type)];
  if (!(own.type() == type)) own = Tensor(type);
  place.written.push_back(own.view());
  std::vector<mesh::Range> slice;
  for (const int64_t size : type.shape.to_vector()) slice.push_back({0, size});
  slice[0].size = rows;
  for (const auto& to : places) {
    place.pieces.emplace_back(mesh::piece_of(own.view(), slice), to);
    slice[0].offset += rows;
  }
}

}  // namespace tessera::train
