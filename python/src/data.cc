// Data sets and transforms.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <utility>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

// A Python object that C++ threads hold: it is let go of under the GIL.
std::shared_ptr<nb::object> shared(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* held) { let_go(held); }};
}

// Names and values of one sample: a dict, a tuple or a single value.
std::vector<nb::object> values_of(nb::handle sample, const std::vector<data::Column>& columns) {
  std::vector<nb::object> values;
  if (nb::isinstance<nb::dict>(sample)) {
    const auto given = nb::borrow<nb::dict>(sample);
    for (const auto& column : columns) {
      if (!given.contains(column.name.c_str())) {
        std::vector<std::string> keys;
        for (const auto& item : given) keys.push_back(nb::cast<std::string>(nb::repr(item.first)));
        throw InvalidArgument(
            "a sample, a dict, has no value for the column \"{}\"; its keys are {}: column_names says "
            "which of them are columns",
            column.name, fmt::join(keys, ", "));
      }
      values.push_back(given[column.name.c_str()]);
    }
  } else if (nb::isinstance<nb::tuple>(sample) || nb::isinstance<nb::list>(sample)) {
    for (const nb::handle value : sample) values.push_back(nb::borrow(value));
  } else {
    values.push_back(nb::borrow(sample));
  }
  if (values.size() != columns.size()) {
    std::vector<std::string> names;
    for (const auto& column : columns) names.push_back(fmt::format("\"{}\"", column.name));
    throw InvalidArgument(
        "a sample has {} values, the data set has {} columns: {}; a sample is a dict, or a tuple or list "
        "of a value for each column in this order",
        values.size(), columns.size(), fmt::join(names, ", "));
  }
  return values;
}

void write_sample(nb::handle sample, const std::vector<data::Column>& columns, std::span<const TensorView> outputs) {
  const auto values = values_of(sample, columns);
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor value = to_tensor(values[i]);
    if (!(value.shape() == outputs[i].shape)) {
      throw InvalidArgument("column \"{}\": a sample is {}, the first one was {}", columns[i].name, value.type(),
                            columns[i].type);
    }
    copy_elements(value.view(), outputs[i]);
  }
}

std::vector<data::Column> columns_of(nb::handle sample, const std::vector<std::string>& names) {
  std::vector<data::Column> columns;
  for (const auto& name : names) columns.push_back({name, {}});
  const auto values = values_of(sample, columns);
  for (size_t i = 0; i < values.size(); ++i) columns[i].type = to_tensor(values[i]).type();
  return columns;
}

data::SourceOptions source_options(int64_t num_samples, bool shuffle, int64_t num_shards, int64_t shard_id,
                                   std::optional<Seed> seed) {
  return {num_samples, shuffle, num_shards, shard_id, or_global(seed)};
}

nb::object of_source_state(const char* name) { return nb::module_::import_("tessera._source_state").attr(name); }

// Random numbers that a source in Python draws: it tells their state by functions of its own.
class PythonState final : public data::SourceState {
 public:
  explicit PythonState(nb::object source) : source_(shared(std::move(source))) {}
  std::string get(int64_t) override {
    const WithGil gil;
    return nb::cast<std::string>(of_source_state("ask")(*source_));
  }
  void set(const std::string& text) override {
    const WithGil gil;
    of_source_state("give")(*source_, text);
  }

 private:
  std::shared_ptr<nb::object> source_;
};

class UntoldState final : public data::SourceState {
 public:
  bool is_told() const override { return false; }
  std::string get(int64_t) override { return ""; }
  void set(const std::string&) override {}
};

// Of the source, or of another object that draws for it.
std::shared_ptr<data::SourceState> state_of_source(const nb::object& source, const nb::object& other) {
  const nb::object& owner = other.is_none() ? source : other;
  const auto how = nb::cast<std::string>(of_source_state("how")(owner));
  if (how == "told") return std::make_shared<PythonState>(owner);
  if (how == "untold") return std::make_shared<UntoldState>();
  return nullptr;
}

data::Dataset generator(const nb::object& source, const std::vector<std::string>& names, int64_t num_samples,
                        bool shuffle, int64_t num_shards, int64_t shard_id, std::optional<Seed> seed,
                        const nb::object& state_of) {
  if (!nb::hasattr(source, "__len__") || !nb::hasattr(source, "__getitem__")) {
    const auto text = fmt::format(
        "generator: the source must have __len__ and __getitem__, as a list has, got {}; what can only be iterated "
        "over goes to tessera.data.stream(), or becomes a list",
        nb::cast<std::string>(nb::str(source.type().attr("__name__"))));
    throw nb::type_error(text.c_str());
  }
  const auto size = static_cast<int64_t>(nb::len(source));
  if (size < 1) throw InvalidArgument("generator: the source has no samples");
  const auto columns = columns_of(source[0], names);
  const auto held = shared(source);
  return data::generator(
      columns, size,
      [held, columns](int64_t index, std::span<const TensorView> outputs) {
        const WithGil gil;
        write_sample((*held)[index], columns, outputs);
      },
      source_options(num_samples, shuffle, num_shards, shard_id, seed), state_of_source(source, state_of));
}

data::Dataset stream(const nb::object& open, const std::vector<std::string>& names, int64_t size, int64_t num_samples,
                     std::optional<Seed> seed, bool by_epoch, const nb::object& state_of) {
  const auto pass = [by_epoch](const nb::object& opener, int64_t epoch) {
    return nb::iter(by_epoch ? opener(epoch) : opener());
  };
  const nb::object first = nb::module_::import_("builtins").attr("next")(pass(open, 0), nb::none());
  if (first.is_none()) throw InvalidArgument("stream: there are no samples");
  const auto columns = columns_of(first, names);
  const auto held = shared(open);
  return data::stream(
      columns,
      [held, columns, pass](int64_t epoch) -> data::Stream {
        const WithGil gil;
        const auto iterator = shared(pass(*held, epoch));
        return [iterator, columns](std::span<const TensorView> outputs) {
          const WithGil own_gil;
          const nb::object sample = nb::steal(PyIter_Next(iterator->ptr()));
          if (!sample.is_valid()) {
            if (PyErr_Occurred() != nullptr) throw nb::python_error();
            return false;
          }
          write_sample(sample, columns, outputs);
          return true;
        };
      },
      size, source_options(num_samples, false, 1, 0, seed), state_of_source(open, state_of));
}

// What Python makes of an array; `random`: of the array and a whole number that the draws give.
data::Transform function(const nb::object& f, const std::string& name, bool random) {
  const auto held = shared(f);
  const auto call = [held, random](const TensorView& input, const data::Draws& draws) {
    const nb::object array = nb::cast(Tensor::copy_of(input)).attr("numpy")();
    if (!random) return to_tensor((*held)(array));
    constexpr int64_t kHalf = int64_t{1} << 31;
    return to_tensor((*held)(array, draws.below(0, kHalf) * kHalf + draws.below(1, kHalf)));
  };
  return data::custom(
      name,
      [call](const Type& input) {
        const WithGil gil;
        return call(Tensor::zeros(input).view(), {}).type();
      },
      [call, name](const TensorView& input, const TensorView& output, const data::Draws& draws) {
        const WithGil gil;
        const Tensor result = call(input, draws);
        if (!(result.shape() == output.shape)) {
          throw InvalidArgument("{}: gives {} for one sample and {} for another", name, result.type(), output.type());
        }
        copy_elements(result.view(), output);
      });
}

// A function from arrays to as many arrays as there are output columns, which is called once with zeros to see them.
data::ColumnsFunction columns_function(const nb::object& f, const std::string& name) {
  const auto held = shared(f);
  const auto call = [held, name](std::span<const TensorView> inputs) {
    nb::list arguments;
    for (const auto& input : inputs) arguments.append(nb::cast(Tensor::copy_of(input)).attr("numpy")());
    const nb::object result = (*held)(*arguments);
    std::vector<Tensor> values;
    if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result)) {
      for (const nb::handle value : result) values.push_back(to_tensor(value));
    } else {
      values.push_back(to_tensor(result));
    }
    return values;
  };
  return {name,
          [call](const std::vector<Type>& inputs) {
            const WithGil gil;
            std::vector<Tensor> zeros;
            std::vector<TensorView> views;
            for (const Type& type : inputs) zeros.push_back(Tensor::zeros(type));
            for (const Tensor& value : zeros) views.push_back(value.view());
            std::vector<Type> types;
            for (const Tensor& value : call(views)) types.push_back(value.type());
            return types;
          },
          [call, name](std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
            const WithGil gil;
            const std::vector<Tensor> values = call(inputs);
            if (values.size() != outputs.size()) {
              throw InvalidArgument("{}: gives {} values for one sample and {} for another", name, values.size(),
                                    outputs.size());
            }
            for (size_t i = 0; i < values.size(); ++i) {
              if (!(values[i].shape() == outputs[i].shape)) {
                throw InvalidArgument("{}: gives {} for one sample and {} for another", name, values[i].type(),
                                      outputs[i].type());
              }
              copy_elements(values[i].view(), outputs[i]);
            }
          }};
}

// Batches as Python iterates over them. Workers may wait for the GIL: nothing here waits for them with it.
class Batches {
 public:
  Batches(data::BatchIterator iterator, bool has_workers) : iterator_(std::move(iterator)), has_workers_(has_workers) {
    living().insert(this);
  }
  ~Batches() {
    living().erase(this);
    const Visit visit;
    if (!home_.is_here()) {
      static_cast<void>(new std::optional(std::move(iterator_)));
      return;
    }
    // With the GIL nobody may wait for the workers, and it cannot be given up when the door is closed.
    if (!visit.is_welcome()) {
      abandoned().push_back(std::move(iterator_));
    } else {
      stop();
    }
  }
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  nb::object next() {
    if (!iterator_) throw ProcessEnds();
    if (has_workers_ && !home_.is_here()) {
      throw Error(
          "batches: this iterator was made before fork(), and the threads that make its batches are the parent's: make "
          "one in the child");
    }
    std::optional<std::vector<Tensor>> batch;
    {
      const nb::gil_scoped_release release;
      batch = iterator_->next();
    }
    if (!batch) throw nb::stop_iteration();
    nb::list columns;
    for (auto& column : *batch) columns.append(nb::cast(std::move(column)));
    return nb::tuple(columns);
  }
  // Of all: their workers are not to run on while what is static in C++ goes.
  static void stop_all() {
    for (Batches* batches : std::vector(living().begin(), living().end())) batches->stop();
    auto gone = std::exchange(abandoned(), {});
    const nb::gil_scoped_release release;
    gone.clear();
  }

 private:
  static std::set<Batches*>& living() {
    static auto& all = *new std::set<Batches*>();  // guarded by the GIL; never destroyed, Python may be gone
    return all;
  }
  // Of those that went when the door was closed. Guarded by the GIL; never destroyed.
  static std::vector<std::optional<data::BatchIterator>>& abandoned() {
    static auto& all = *new std::vector<std::optional<data::BatchIterator>>();
    return all;
  }
  void stop() {
    const nb::gil_scoped_release release;
    iterator_.reset();
  }

  Home home_;
  std::optional<data::BatchIterator> iterator_;
  bool has_workers_;
};

std::unique_ptr<Batches> batches_of(const data::Dataset& dataset, const data::IterateOptions& options) {
  std::optional<data::BatchIterator> iterator;
  {
    const nb::gil_scoped_release release;
    iterator.emplace(dataset.batches(options));
  }
  return std::make_unique<Batches>(std::move(*iterator), options.num_workers > 0);
}

data::ImageSize to_image_size(nb::handle object) {
  const Ints sizes = to_ints(object);
  if (sizes.size() == 1) return sizes[0];
  if (sizes.size() == 2) return {sizes[0], sizes[1]};
  throw InvalidArgument("an image size is one number or (height, width), got {} numbers", sizes.size());
}

data::Padding to_image_padding(nb::handle object) {
  const Ints sizes = to_ints(object);
  if (sizes.empty()) return {};
  if (sizes.size() == 1) return {sizes[0], sizes[0], sizes[0], sizes[0]};
  if (sizes.size() == 2) return {sizes[0], sizes[1], sizes[0], sizes[1]};
  if (sizes.size() == 4) return {sizes[0], sizes[1], sizes[2], sizes[3]};
  throw InvalidArgument(
      "padding is one number, (left and right, top and bottom) or (left, top, right, bottom), got {} numbers",
      sizes.size());
}

std::map<std::string, int32_t> to_classes(const nb::dict& given) {
  std::map<std::string, int32_t> classes;
  for (const auto& [name, label] : given) classes[nb::cast<Path>(name).bytes] = nb::cast<int32_t>(label);
  return classes;
}

void bind_transforms(nb::module_& m) {
  nb::class_<data::Transform>(m, "Transform",
                              "What map() does to one column of one sample. Called with a tensor, it gives one.")
      .def(
          "__call__",
          [](const data::Transform& self, nb::handle input) {
            return self(to_tensor(input), {{.seed = global_seed()}, static_cast<uint64_t>(draws_of_script()++)});
          },
          "input"_a, "Of one that draws random numbers: other ones at each call, the same again after set_seed().")
      .def("__repr__", &data::Transform::to_string);
  helped(m).def(
      "random_crop",
      [](nb::handle size, nb::handle padding) {
        return data::random_crop(to_image_size(size), to_image_padding(padding));
      },
      "size"_a, "padding"_a = nb::none(), "Pads the image with zeros, then cuts a window of `size` at a random place.");
  helped(m).def("random_horizontal_flip", &data::random_horizontal_flip, "prob"_a = 0.5,
                "Mirrors left and right at random.");
  helped(m).def(
      "resize", [](nb::handle size) { return data::resize(to_image_size(size)); }, "size"_a, "Bilinear.");
  helped(m).def("resize_shorter_side", &data::resize_shorter_side, "side"_a);
  helped(m).def("decode", &data::decode,
                "A file's bytes u8[size], JPEG, PNG or BMP -> the image u8[height, width, 3].");
  helped(m).def(
      "center_crop", [](nb::handle size) { return data::center_crop(to_image_size(size)); }, "size"_a,
      "The window of `size` in the middle, zeros where the image is smaller.");
  helped(m).def(
      "random_resized_crop",
      [](nb::handle size, std::pair<double, double> scale, std::pair<double, double> ratio, int max_attempts) {
        return data::random_resized_crop(to_image_size(size),
                                         {scale.first, scale.second, ratio.first, ratio.second, max_attempts});
      },
      "size"_a, "scale"_a = std::pair(0.08, 1.0), "ratio"_a = std::pair(3.0 / 4, 4.0 / 3), "max_attempts"_a = 10,
      "A window drawn at random, resized to `size`. scale: bounds of its part of the area; ratio: of width over "
      "height.");
  helped(m).def("rescale", &data::rescale, "rescale"_a, "shift"_a = 0.0, "x * rescale + shift, to f32.");
  helped(m).def(
      "normalize", &data::normalize, "mean"_a, "std"_a, "channels_first"_a = false,
      "(x - mean[c]) / std[c] for channel c of [h, w, c], or [c, h, w] with channels_first, to f32. One mean and one "
      "std "
      "are those of all channels.");
  helped(m).def("hwc2chw", &data::hwc2chw, "[h, w, c] -> [c, h, w].");
  helped(m).def(
      "type_cast", [](nb::handle dtype) { return data::type_cast(to_dtype(dtype)); }, "dtype"_a);
  helped(m).def(
      "function", &function, "f"_a, "name"_a = "function", "random"_a = false,
      "A function of one's own, from array to array, of results of one shape; it is called once with zeros to see "
      "which. random: it takes a whole number, too, which is another for each sample and epoch.");
}

// What is done to rows, and how they are read.
void bind_dataset(nb::module_& m) {
  nb::class_<Batches>(m, "Batches")
      .def("__iter__", [](nb::object self) { return self; })
      .def("__next__", &Batches::next);
  nb::class_<data::Dataset>(m, "Dataset",
                            R"(A description of where samples come from and what is done to them; immutable.

A data set describes the global batch: training gives each rank its rows. One with num_shards is a rank's part already.)")
      .def(
          "map",
          [](const data::Dataset& self, const std::string& column, nb::handle transforms) {
            std::vector<data::Transform> list;
            if (nb::isinstance<data::Transform>(transforms)) {
              list.push_back(nb::cast<data::Transform>(transforms));
            } else if (PyCallable_Check(transforms.ptr())) {
              return self.map({column}, {column}, columns_function(nb::borrow(transforms), "function"));
            } else {
              list = nb::cast<std::vector<data::Transform>>(transforms);
            }
            return self.map(column, list);
          },
          "column"_a, "transforms"_a,
          "Replaces a column by what the transforms, or a function of one array, make of it. Before batch().")
      .def(
          "map_columns",
          [](const data::Dataset& self, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
             const nb::object& f,
             const std::string& name) { return self.map(inputs, outputs, columns_function(f, name)); },
          "inputs"_a, "outputs"_a, "f"_a, "name"_a = "function",
          "Replaces columns by those that a function makes: from as many arrays as there are inputs to an array, or a "
          "tuple of as many as there are outputs. Before batch(); called once with zeros to see their types.")
      .def("project", &data::Dataset::project, "columns"_a, "These columns, in this order. Before batch().")
      .def(
          "mixup", &data::Dataset::mixup, "alpha"_a, "num_classes"_a = 0,
          R"(Mixup: each row becomes w times itself plus 1 - w times another row, in every column. Before batch() and repeat().

alpha: w is drawn for each row from Beta(alpha, alpha), alpha above 0. Columns are float32 of any shape; the last is the label.
num_classes: how many classes there are where the label is a class number, an integer of shape []: it becomes probabilities
float32[num_classes], which nn.CrossEntropy takes; 0: it is float32 of any shape and mixed like the others. The other row is
drawn from all rows of the epoch. Both draws depend on seed, epoch and the row's place alone: rows are the same for any number of
ranks, whatever the plan. Each row is made of two, which takes twice the time. Raises InvalidArgument for columns that are none of these,
and for a label outside of [0, num_classes). Zhang et al., ICLR 2018.

rows = tessera.data.tensors({"x": x, "label": label}).mixup(0.2, num_classes=10).batch(32))")
      .def("cutmix", &data::Dataset::cutmix, "alpha"_a, "num_classes"_a = 0, "channels_first"_a = false,
           R"(CutMix: a window of another row's image is put over each row's. Before batch() and repeat().

The label becomes the mean that the two parts' areas say. Two columns: an image [h,w,c] of any dtype, with channels_first
[c,h,w], and the label, as for mixup(). The window has a part 1 - w of the area, w drawn from Beta(alpha, alpha), around a place
drawn uniformly; what would stand over the edges is cut off. Draws, errors and num_classes are mixup()'s. Yun et al., ICCV 2019.

rows = tessera.data.cifar10("cifar").map("label", [tessera.data.type_cast("int32")]).cutmix(1.0, num_classes=10).batch(32))")
      .def("as_part_of", &data::Dataset::as_part_of, "num_parts"_a,
           "The same rows, taken as one rank's part of the rows of so many ranks; 1: as all rows.")
      .def("shuffle", &data::Dataset::shuffle, "buffer_size"_a, "A new order in each epoch.")
      .def(
          "batch", [](const data::Dataset& self, int64_t size, bool drop) { return self.batch(size, {drop}); },
          "batch_size"_a, "drop_remainder"_a = false, "Rows of batch_size samples, one more dim in front.")
      .def("repeat", &data::Dataset::repeat, "count"_a = -1, "count epochs become one; -1: no end.")
      .def("take", &data::Dataset::take, "count"_a)
      .def("skip", &data::Dataset::skip, "count"_a)
      .def("get_dataset_size", &data::Dataset::get_dataset_size, nb::call_guard<nb::gil_scoped_release>(),
           "Rows of an epoch: batches once batched.")
      .def("get_batch_size", &data::Dataset::get_batch_size)
      .def("get_repeat_count", &data::Dataset::get_repeat_count)
      .def("num_shards", &data::Dataset::num_shards)
      .def("column_names", &data::Dataset::column_names)
      .def("output_types", &data::Dataset::output_types)
      .def("output_shapes",
           [](const data::Dataset& self) {
             nb::list shapes;
             for (const auto& shape : self.output_shapes()) shapes.append(nb::tuple(nb::cast(shape.to_vector())));
             return shapes;
           })
      .def(
          "batches",
          [](const data::Dataset& self, int64_t num_epochs, int num_workers, int64_t first_epoch) {
            return batches_of(self, {.start = {first_epoch, 0}, .num_epochs = num_epochs, .num_workers = num_workers});
          },
          "num_epochs"_a = 1, "num_workers"_a = 1, "first_epoch"_a = 0,
          "Tuples of tensors, one per column; -1 epochs: without end. Each epoch has an order of its own.")
      .def("__iter__", [](const data::Dataset& self) { return batches_of(self, {.num_workers = 0}); })
      .def("__len__", &data::Dataset::get_dataset_size, nb::call_guard<nb::gil_scoped_release>())
      .def("__repr__", &data::Dataset::to_string);
}

// Data sets whose files are known.
void bind_known_sets(nb::module_& m) {
  helped(m).def(
      "cifar10",
      [](const Path& directory, const std::string& usage, bool shuffle, int64_t num_samples, int64_t num_shards,
         int64_t shard_id, std::optional<Seed> seed) {
        return data::cifar10(directory.bytes, {.usage = usage,
                                               .num_samples = num_samples,
                                               .shuffle = shuffle,
                                               .num_shards = num_shards,
                                               .shard_id = shard_id,
                                               .seed = or_global(seed)});
      },
      "directory"_a, "usage"_a = "", "shuffle"_a = true, "num_samples"_a = 0, "num_shards"_a = 1, "shard_id"_a = 0,
      "seed"_a = nb::none(),
      "CIFAR-10's binary files: columns image u8[32,32,3] and label u32[]. usage: train, test, or both.");
  helped(m).def(
      "mnist",
      [](const Path& directory, const std::string& usage, bool shuffle, int64_t num_samples, int64_t num_shards,
         int64_t shard_id, std::optional<Seed> seed) {
        return data::mnist(directory.bytes, {.usage = usage,
                                             .num_samples = num_samples,
                                             .shuffle = shuffle,
                                             .num_shards = num_shards,
                                             .shard_id = shard_id,
                                             .seed = or_global(seed)});
      },
      "directory"_a, "usage"_a = "", "shuffle"_a = true, "num_samples"_a = 0, "num_shards"_a = 1, "shard_id"_a = 0,
      "seed"_a = nb::none(),
      "MNIST's IDX files: columns image u8[28,28,1] and label u32[]. usage: train, test, or both.");
  helped(m).def(
      "image_folder",
      [](const Path& directory, const std::vector<std::string>& extensions, const nb::dict& class_indexing,
         bool shuffle, int64_t num_samples, int64_t num_shards, int64_t shard_id, std::optional<Seed> seed) {
        return data::image_folder(directory.bytes, {.extensions = extensions,
                                                    .class_indexing = to_classes(class_indexing),
                                                    .num_samples = num_samples,
                                                    .shuffle = shuffle,
                                                    .num_shards = num_shards,
                                                    .shard_id = shard_id,
                                                    .seed = or_global(seed)});
      },
      "directory"_a, "extensions"_a = nb::make_tuple(), "class_indexing"_a = nb::dict(), "shuffle"_a = true,
      "num_samples"_a = 0, "num_shards"_a = 1, "shard_id"_a = 0, "seed"_a = nb::none(),
      R"(The images in the folders of a folder, one for each class: columns image, the bytes of a file, and label int32[].

extensions: of the files that count, as they are written; (): all files. class_indexing: {folder: label}, others are left out; {}:
0, 1, ... in the order of the folders' names. Images become one size by map(), before batch(): decode(), then a resize or crop.)");
  helped(m).def(
      "image_classes",
      [](const Path& directory) {
        nb::dict classes;
        for (const auto& [name, label] : data::image_classes(FileSystem::local(), directory.bytes)) {
          classes[nb::cast(Path{name})] = label;
        }
        return classes;
      },
      "directory"_a, "{folder: label}: what image_folder() gives them.");
  helped(m).def(
      "write_synthetic_cifar10",
      [](const Path& directory, int64_t train_records, int64_t test_records, Seed seed) {
        data::write_synthetic_cifar10(FileSystem::local(), directory.bytes,
                                      {.train_records = train_records, .test_records = test_records, .seed = seed});
      },
      "directory"_a, "train_records"_a, "test_records"_a, "seed"_a = 1,
      "Writes a small made-up data set in CIFAR-10's form.");
}

// Samples of the caller's own.
void bind_sources(nb::module_& m) {
  helped(m).def(
      "generator", &generator, "source"_a, "column_names"_a, "num_samples"_a = 0, "shuffle"_a = false,
      "num_shards"_a = 1, "shard_id"_a = 0, "seed"_a = nb::none(), "state_of"_a = nb::none(),
      "Samples source[0], ..., source[len(source) - 1]: tuples or dicts of arrays, or single arrays, all of one type. "
      "A "
      "source that draws random numbers by itself tells their state by state() and set_state(state), or state_dict() "
      "and load_state_dict(state): a training that goes on after a loss or from a checkpoint then draws what it would "
      "have drawn; one worker reads such a source. state_of: another object that has these functions.");
  helped(m).def(
      "stream", &stream, "open"_a, "column_names"_a, "size"_a = -1, "num_samples"_a = 0, "seed"_a = nb::none(),
      "by_epoch"_a = false, "state_of"_a = nb::none(),
      "Samples that are read in order: open() returns an iterator, once per epoch; without a size one pass counts "
      "them. by_epoch: open(epoch) is given the epoch's number, from 0, and may be called again for the same one; a "
      "training that is resumed then reads what it would have read. state_of: an object that has state() and "
      "set_state(), see generator(), where open has not; they are asked before each pass.");
  helped(m).def(
      "tensors",
      [](nb::dict columns, bool shuffle, int64_t num_shards, int64_t shard_id, std::optional<Seed> seed,
         int64_t num_samples) {
        std::vector<data::NamedTensor> named;
        for (const auto& [key, value] : columns) {
          const auto name = nb::cast<std::string>(key);
          try {
            named.push_back({name, to_tensor(value)});
          } catch (const nb::builtin_exception& fault) {
            throw nb::type_error(fmt::format("tensors(): column \"{}\": {}", name, fault.what()).c_str());
          } catch (const InvalidArgument& fault) {
            throw InvalidArgument("tensors(): column \"{}\": {}", name, fault.what());
          }
        }
        return data::tensors(std::move(named), source_options(num_samples, shuffle, num_shards, shard_id, seed));
      },
      "columns"_a, "shuffle"_a = false, "num_shards"_a = 1, "shard_id"_a = 0, "seed"_a = nb::none(),
      "num_samples"_a = 0,
      "Row i of each array is sample i. num_samples: at most so many of this shard's samples, the first ones; 0: all.");
}

}  // namespace

void bind_data(nb::module_& parent) {
  parent.def(
      "_stop_batches", &Batches::stop_all,
      "As the process ends, once no other thread is in C++: stops the workers of all that iterates over batches.");
  auto m = parent.def_submodule("data", "Data sets: where samples come from and what is done to them.");
  bind_transforms(m);
  bind_dataset(m);
  bind_known_sets(m);
  bind_sources(m);
  bind_text(m);
}

}  // namespace tessera::python
