#include "tessera/data/dataset.h"

#include <algorithm>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/mapped_source.h"
#include "tessera/data/mixed_source.h"
#include "tessera/data/prepared_source.h"
#include "tessera/data/recipe.h"

namespace tessera::data {
namespace {

std::shared_ptr<Recipe> with_text(const Recipe& recipe, const std::string& text) {
  auto copy = std::make_shared<Recipe>(recipe);
  copy->text += text;
  if (!text.starts_with(" | map")) copy->row_order += text;
  return copy;
}

// Appends a stage at the level, samples or batches, that the data set has reached.
void add_stage(Recipe& recipe, std::shared_ptr<const IndexStage> stage) {
  (recipe.batch_size > 0 ? recipe.batch_stages : recipe.sample_stages).push_back(std::move(stage));
}

// Where samples of the column differ in size: takes the links that bring them to one size, or all, into a source of its
// own. What is left works on samples of one size.
void prepare(Recipe& recipe, size_t column, std::vector<ChainLink>& links) {
  Type type = recipe.source->columns()[column].type;
  size_t count = 0;
  while (has_any_size(type) && count < links.size()) type = links[count++].transform.output_type(type);
  if (count == 0) return;
  const auto end = links.begin() + static_cast<std::ptrdiff_t>(count);
  recipe.source = std::make_shared<PreparedSource>(recipe.source, column, std::vector<ChainLink>(links.begin(), end),
                                                   recipe.order->options().seed);
  links.erase(links.begin(), end);
}

}  // namespace

SourceOrder::SourceOrder(const std::string& source, int64_t num_source_samples, const SourceOptions& options)
    : num_source_samples_(num_source_samples), options_(options), size_(0) {
  if (num_source_samples < 1) throw InvalidArgument("{}: has no samples", source);
  if (options.num_shards < 1 || options.shard_id < 0 || options.shard_id >= options.num_shards) {
    throw InvalidArgument("{}: shard_id must be in [0, num_shards), got shard_id {} of num_shards {}", source,
                          options.shard_id, options.num_shards);
  }
  if (options.num_samples < 0) {
    throw InvalidArgument("{}: num_samples must be 0 (all) or positive, got {}", source, options.num_samples);
  }
  size_ = (num_source_samples + options.num_shards - 1) / options.num_shards;
  if (options.num_samples > 0) size_ = std::min(size_, options.num_samples);
}

SampleRef SourceOrder::sample(EpochIndex place) const {
  return at(place.epoch, place.index * options_.num_shards + options_.shard_id);
}

SampleRef SourceOrder::at(int64_t epoch, int64_t position) const {
  const int64_t wrapped = position % num_source_samples_;
  if (!options_.shuffle) return {epoch, wrapped, position};
  const auto make = [this](int64_t of_epoch, std::vector<int64_t>& order) {
    buffer_shuffle({options_.seed, stream_, static_cast<uint64_t>(of_epoch)}, num_source_samples_, num_source_samples_,
                   order);
  };
  return {epoch, cache_.at(epoch, wrapped, make), position};
}

int64_t Recipe::num_batched_rows() const {
  const int64_t samples = num_samples();
  if (batch_size == 0 || samples == kEndless) return samples;
  return drop_remainder ? samples / batch_size : samples / batch_size + (samples % batch_size == 0 ? 0 : 1);
}

RowRange Recipe::rows(EpochIndex place) const {
  for (auto stage = batch_stages.rbegin(); stage != batch_stages.rend(); ++stage) place = (*stage)->input_place(place);
  if (batch_size == 0) return {place.epoch, place.index, 1};
  const int64_t first = place.index * batch_size;
  return {place.epoch, first, std::min(batch_size, num_samples() - first)};
}

SampleRef Recipe::sample(EpochIndex place) const {
  for (auto stage = sample_stages.rbegin(); stage != sample_stages.rend(); ++stage) {
    place = (*stage)->input_place(place);
  }
  return order->sample(place);
}

std::vector<Tensor> Recipe::make_sample(const SampleRef& sample) const {
  std::vector<Tensor> values;
  std::vector<TensorView> views;
  for (const Column& column : source->columns()) values.emplace_back(column.type);
  for (const Tensor& value : values) views.push_back(value.view());
  source->read(sample, views);
  const SampleKey key{order->options().seed, sample.epoch, sample.position};
  for (size_t i = 0; i < values.size(); ++i) {
    const Chain& chain = *chains[i];
    if (chain.empty()) continue;
    Tensor transformed(chain.output_type());
    auto workspace = chain.make_workspace();
    chain.run(values[i].view(), transformed.view(), key, workspace);
    values[i] = std::move(transformed);
  }
  return values;
}

Dataset::Dataset(std::shared_ptr<const Source> source, const SourceOptions& options) {
  auto recipe = std::make_shared<Recipe>();
  recipe->order = std::make_shared<SourceOrder>(source->to_string(), source->size(), options);
  if (source->columns().empty()) throw InvalidArgument("{}: has no columns", source->to_string());
  for (const Column& column : source->columns()) {
    recipe->links.emplace_back();
    recipe->chains.push_back(std::make_shared<Chain>(column.type, std::vector<ChainLink>{}));
  }
  recipe->nominal_size = recipe->order->size();
  recipe->num_parts = options.num_shards;
  recipe->text = fmt::format("{}: {} of {} samples, {}, shard {} of {}, seed {}", source->to_string(),
                             recipe->order->size(), source->size(), options.shuffle ? "shuffled" : "in order",
                             options.shard_id, options.num_shards, options.seed);
  // The seed has no part in the order of what is not shuffled.
  recipe->row_order =
      fmt::format("{} of {} samples, {}, {} shards", recipe->order->size(), source->size(),
                  options.shuffle ? fmt::format("shuffled by seed {}", options.seed) : "in order", options.num_shards);
  recipe->source = std::move(source);
  recipe_ = std::move(recipe);
}

Dataset Dataset::map(const std::string& column, const std::vector<Transform>& transforms) const {
  if (recipe_->batch_size > 0) {
    throw InvalidArgument("map \"{}\": stands after batch; transforms work on samples, put map before batch", column);
  }
  const std::vector<std::string> names = column_names();
  const auto found = std::find(names.begin(), names.end(), column);
  if (found == names.end()) {
    throw InvalidArgument("map \"{}\": no such column; the data set has {}", column, fmt::join(names, ", "));
  }
  std::string text;
  for (const Transform& transform : transforms) text += ", " + transform.to_string();
  auto recipe = with_text(*recipe_, fmt::format(" | map \"{}\"{}", column, text));
  const auto i = static_cast<size_t>(found - names.begin());
  int ordinal = 0;
  std::vector<ChainLink> links;
  for (const Transform& transform : transforms) {
    // Two equal transforms of one data set must not draw the same numbers.
    const uint64_t stream = hash_name(fmt::format("data.map{}.{}", recipe->num_maps, ordinal++));
    links.push_back({transform, stream});
  }
  ++recipe->num_maps;
  try {
    prepare(*recipe, i, links);
    auto& all = recipe->links[i];
    all.insert(all.end(), links.begin(), links.end());
    recipe->chains[i] = std::make_shared<Chain>(recipe->source->columns()[i].type, all);
    if (!links.empty() && has_any_size(recipe->column_type(i))) {
      throw InvalidArgument("decode: needs a column of files, as image_folder() has it");
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("map \"{}\": {}", column, error.what());
  }
  return Dataset(std::move(recipe));
}

Dataset Dataset::map(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                     const ColumnsFunction& function) const {
  return with_source(std::make_shared<MappedSource>(recipe_, inputs, outputs, function),
                     fmt::format("map \"{}\" to \"{}\", {}", fmt::join(inputs, "\", \""), fmt::join(outputs, "\", \""),
                                 function.name));
}

Dataset Dataset::project(const std::vector<std::string>& columns) const {
  return with_source(std::make_shared<MappedSource>(recipe_, columns),
                     fmt::format("project \"{}\"", fmt::join(columns, "\", \"")));
}

Dataset Dataset::mixed(MixOptions options) const {
  const auto text = fmt::format("{} {}, {} classes{}", options.name, options.alpha, options.num_classes,
                                options.has_channels_first ? ", channels first" : "");
  if (recipe_->batch_size > 0) throw InvalidArgument("{}: stands after batch; put it before batch", options.name);
  // What is mixed twice draws twice.
  options.stream = hash_name(fmt::format("data.{}{}", options.name, recipe_->num_mixes));
  auto recipe = std::make_shared<Recipe>(*recipe_);
  ++recipe->num_mixes;
  return Dataset(recipe).with_source(std::make_shared<MixedSource>(recipe_, std::move(options)), text);
}

Dataset Dataset::mixup(double alpha, int64_t num_classes) const {
  return mixed({.name = "mixup", .alpha = alpha, .num_classes = num_classes});
}

Dataset Dataset::cutmix(double alpha, int64_t num_classes, bool channels_first) const {
  return mixed({.name = "cutmix",
                .alpha = alpha,
                .num_classes = num_classes,
                .cuts = true,
                .has_channels_first = channels_first});
}

Dataset Dataset::with_source(std::shared_ptr<const Source> source, const std::string& text) const {
  if (recipe_->batch_size > 0) throw InvalidArgument("{}: stands after batch; put it before batch", text);
  auto recipe = with_text(*recipe_, " | " + text);
  recipe->links.assign(source->columns().size(), {});
  recipe->chains.clear();
  for (const Column& column : source->columns()) {
    recipe->chains.push_back(std::make_shared<Chain>(column.type, std::vector<ChainLink>{}));
  }
  recipe->source = std::move(source);
  return Dataset(std::move(recipe));
}

Dataset Dataset::as_part_of(int64_t num_parts) const {
  if (num_parts < 1) throw InvalidArgument("as_part_of: num_parts must be positive, got {}", num_parts);
  auto recipe = with_text(*recipe_, "");
  recipe->num_parts = num_parts;
  return Dataset(std::move(recipe));
}

Dataset Dataset::shuffle(int64_t buffer_size) const {
  if (buffer_size < 1) throw InvalidArgument("shuffle: buffer_size must be positive, got {}", buffer_size);
  if (is_endless()) {
    throw InvalidArgument("shuffle: stands after a repeat without end; put shuffle before repeat");
  }
  auto recipe = with_text(*recipe_, fmt::format(" | shuffle {}", buffer_size));
  recipe->row_order += fmt::format(" by seed {}", recipe->order->options().seed);
  const uint64_t stream = hash_name(fmt::format("data.shuffle{}", recipe->num_shuffles++));
  add_stage(*recipe, shuffle_stage(recipe->size(), buffer_size, recipe->order->options().seed, stream));
  return Dataset(std::move(recipe));
}

Dataset Dataset::batch(int64_t batch_size, const BatchOptions& options) const {
  if (batch_size < 1) throw InvalidArgument("batch: batch_size must be positive, got {}", batch_size);
  if (recipe_->batch_size > 0) {
    throw InvalidArgument("batch: the data set is batched already, by {}", recipe_->batch_size);
  }
  for (const Column& column : columns()) {
    require_one_size("batch", column);
    if (column.type.shape.ndim() == kMaxNdim) {
      throw InvalidArgument("batch: column \"{}\" of type {} has no dim to spare", column.name, column.type);
    }
  }
  auto recipe =
      with_text(*recipe_, fmt::format(" | batch {}{}", batch_size, options.drop_remainder ? " drop_remainder" : ""));
  recipe->batch_size = batch_size;
  recipe->drop_remainder = options.drop_remainder;
  const bool has_rest = !options.drop_remainder && recipe->nominal_size % batch_size != 0;
  recipe->nominal_size = recipe->nominal_size / batch_size + (has_rest ? 1 : 0);
  return Dataset(std::move(recipe));
}

Dataset Dataset::repeat(int64_t count) const {
  if (count == 0 || count < -1) {
    throw InvalidArgument("repeat: count must be positive, or -1 for no end, got {}", count);
  }
  if (is_endless()) throw InvalidArgument("repeat: the data set repeats without end already");
  if (recipe_->size() == 0) {
    throw InvalidArgument("repeat: there is nothing to repeat; an epoch of \"{}\" is empty", to_string());
  }
  int64_t size = 0;
  if (count != -1 && __builtin_mul_overflow(recipe_->size(), count, &size)) {
    throw InvalidArgument("repeat: {} times {} rows are more than an int64 counts; without a count there is no end",
                          count, recipe_->size());
  }
  auto recipe = with_text(*recipe_, count == -1 ? " | repeat" : fmt::format(" | repeat {}", count));
  add_stage(*recipe, repeat_stage(recipe->size(), count == -1 ? kEndless : count));
  recipe->repeat_count = count == -1 ? -1 : recipe->repeat_count * count;
  if (count != -1) recipe->nominal_size = recipe->size();
  return Dataset(std::move(recipe));
}

Dataset Dataset::take(int64_t count) const {
  if (count < 1) throw InvalidArgument("take: count must be positive, got {}", count);
  auto recipe = with_text(*recipe_, fmt::format(" | take {}", count));
  add_stage(*recipe, take_stage(recipe->size(), count));
  recipe->nominal_size = recipe->size();
  return Dataset(std::move(recipe));
}

Dataset Dataset::skip(int64_t count) const {
  if (count < 0) throw InvalidArgument("skip: count must not be negative, got {}", count);
  auto recipe = with_text(*recipe_, fmt::format(" | skip {}", count));
  add_stage(*recipe, skip_stage(recipe->size(), count));
  if (!is_endless()) recipe->nominal_size = recipe->size();
  return Dataset(std::move(recipe));
}

int64_t Dataset::get_dataset_size() const { return recipe_->nominal_size; }
bool Dataset::is_endless() const { return recipe_->size() == kEndless; }
int64_t Dataset::get_batch_size() const { return std::max<int64_t>(recipe_->batch_size, 1); }
int64_t Dataset::short_batch_rows() const {
  const int64_t samples = recipe_->num_samples();
  if (recipe_->batch_size == 0 || recipe_->drop_remainder || samples == kEndless) return 0;
  const int64_t rows = samples % recipe_->batch_size;
  if (rows == 0 || recipe_->batch_stages.empty()) return rows;
  // What comes behind may leave it out.
  for (int64_t i = get_dataset_size() - 1; i >= 0; --i) {
    if (recipe_->rows({0, i}).count == rows) return rows;
  }
  return 0;
}
int64_t Dataset::get_repeat_count() const { return recipe_->repeat_count; }
std::string Dataset::to_string() const { return recipe_->text; }

std::string Dataset::order_text() const { return recipe_->row_order; }
uint64_t Dataset::content_hash() const { return recipe_->source->content_hash(); }
const SourceOptions& Dataset::source_options() const { return recipe_->order->options(); }
SourceState* Dataset::source_state() const { return recipe_->source->own_state(); }

int64_t Dataset::num_shards() const { return recipe_->num_parts; }

std::vector<Column> Dataset::columns() const {
  std::vector<Column> columns = recipe_->source->columns();
  for (size_t i = 0; i < columns.size(); ++i) {
    Type type = recipe_->column_type(i);
    if (recipe_->batch_size > 0) {
      Shape shape{recipe_->batch_size};
      for (const int64_t size : type.shape) shape.push_back(size);
      type.shape = shape;
    }
    columns[i].type = type;
  }
  return columns;
}

std::vector<std::string> Dataset::column_names() const {
  std::vector<std::string> names;
  for (const Column& column : recipe_->source->columns()) names.push_back(column.name);
  return names;
}

std::vector<DType> Dataset::output_types() const {
  std::vector<DType> dtypes;
  for (const Column& column : columns()) dtypes.push_back(column.type.dtype);
  return dtypes;
}

std::vector<Shape> Dataset::output_shapes() const {
  std::vector<Shape> shapes;
  for (const Column& column : columns()) shapes.push_back(column.type.shape);
  return shapes;
}

BatchIterator Dataset::batches(const IterateOptions& options) const { return {recipe_, options}; }

}  // namespace tessera::data
