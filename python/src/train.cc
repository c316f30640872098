// Model and metrics.
#include <fmt/ranges.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "python/src/bind.h"
#include "python/src/callbacks.h"
#include "python/src/helped_module.h"
#include "python/src/keywords.h"
#include "python/src/model_options.h"
#include "python/src/python_model.h"
#include "python/src/tracing.h"

namespace tessera::python {
namespace {

// Ctrl-C is an exception in Python; it is no failure of the training.
std::string signal_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const nb::python_error& error) {
    const nb::gil_scoped_acquire gil;
    return error.matches(PyExc_KeyboardInterrupt) ? "SIGINT" : "";
  } catch (...) {
    return "";
  }
}

// Scores that Python computes of prefixes.
std::vector<train::Decoded> search(int64_t num_sequences, const nb::object& next, int64_t max_length, int64_t beam_size,
                                   double length_penalty, int32_t begin, int32_t end, int32_t padding) {
  return train::beam_search(num_sequences,
                            [&](const Tensor& prefixes, int64_t length) {
                              return to_tensor(next(nb::cast(Tensor::copy_of(prefixes.view())), length));
                            },
                            {beam_size, max_length, begin, end, padding, length_penalty});
}

// As a stub has it.
std::string model_signature() {
  const auto name = [](nb::handle type) { return nb::cast<std::string>(nb::type_name(type)); };
  const std::string cell = name(nb::type<nn::Cell>());
  return fmt::format(
      "def __init__(self, network: {0}, loss: {0} | None = None, optimizer: {1} | None = None, metrics: "
      "collections.abc.Sequence[str] = (), *, {2}, sliced_parameters: bool = False, states: "
      "collections.abc.Sequence[{3}] = ()) -> None",
      cell, name(nb::type<nn::Optimizer>()), option_signature(), name(nb::type<nn::Parameter>()));
}

// What train() is told to go on from, in C++'s words.
std::string to_resume(const std::optional<std::variant<bool, Path>>& given) {
  if (!given) return "";
  if (const auto* path = std::get_if<Path>(&*given)) {
    if (path->bytes.empty())
      throw InvalidArgument("train: resume is an empty path; None goes on from the model as it is");
    return path->bytes;
  }
  if (!std::get<bool>(*given)) return "";
  throw InvalidArgument(
      "train: resume=True does not say from what: \"auto\" goes on where there is a checkpoint, and a path must hold "
      "one");
}

std::vector<std::string> to_patterns(nb::handle given) {
  if (given.is_none()) return {};
  if (nb::isinstance<nb::str>(given)) return {nb::cast<std::string>(given)};
  return nb::cast<std::vector<std::string>>(given);
}

using Rename = std::function<std::string(const std::string&)>;

// By the longest key that is the name or that of a cell above it; "" is above all.
Rename rename_by(std::map<std::string, std::optional<std::string>> names) {
  return [names = std::move(names)](const std::string& name) -> std::string {
    std::string above = name;
    while (true) {
      if (const auto found = names.find(above); found != names.end()) {
        if (!found->second) return "";
        std::string rest = name.substr(std::min(name.size(), above.empty() ? 0 : above.size() + 1));
        if (rest.empty() || found->second->empty()) return *found->second + rest;
        return *found->second + "." + rest;
      }
      if (above.empty()) return name;
      const auto dot = above.rfind('.');
      above.resize(dot == std::string::npos ? 0 : dot);
    }
  };
}

Rename to_rename(nb::handle given) {
  if (given.is_none()) return {};
  if (nb::isinstance<nb::dict>(given)) {
    return rename_by(nb::cast<std::map<std::string, std::optional<std::string>>>(given));
  }
  // Copies of it are made without the GIL.
  return [function = std::make_shared<nb::object>(nb::borrow(given))](const std::string& name) {
    const nb::gil_scoped_acquire gil;
    const nb::object renamed = (*function)(name);
    return renamed.is_none() ? std::string() : nb::cast<std::string>(renamed);
  };
}

// What a dict names.
std::vector<std::string> renamed_by(nb::handle given) {
  std::vector<std::string> names;
  if (!nb::isinstance<nb::dict>(given)) return names;
  for (const auto& [name, other] : nb::borrow<nb::dict>(given)) names.push_back(nb::cast<std::string>(name));
  return names;
}

void bind_loaded(nb::module_& m) {
  nb::class_<train::LoadedParameters>(m, "LoadedParameters", "What Model.load_parameters() has done; lists of names.")
      .def_ro("loaded", &train::LoadedParameters::loaded, "Of the network.")
      .def_ro("missing", &train::LoadedParameters::missing,
              "Of the network: they were to be loaded, and the checkpoint lacks them.")
      .def_ro("left_out", &train::LoadedParameters::left_out,
              "Of the checkpoint, as they are called there: its tensors that were not loaded.")
      .def("__repr__", [](const train::LoadedParameters& self) {
        return fmt::format("LoadedParameters({} loaded, missing: [{}], left out: [{}])", self.loaded.size(),
                           fmt::join(self.missing, ", "), fmt::join(self.left_out, ", "));
      });
}

// The averages of a model's parameters in their places, for a with statement.
struct AverageScope {
  nb::object model;
};

void bind_averages(nb::module_& m) {
  nb::class_<AverageScope>(m, "_AverageScope")
      .def("__enter__",
           [](AverageScope& self) {
             auto& model = nb::cast<PythonModel&>(self.model);
             const Turn turn = model.turn();
             {
               const WithoutGil computing;
               model.model().put_averages_in_place();
             }
             model.changed();
             return self.model;
           })
      .def("__exit__", [](AverageScope& self, const nb::args&) {
        auto& model = nb::cast<PythonModel&>(self.model);
        const Turn turn = model.turn();
        {
          const WithoutGil computing;
          model.as_it_is().restore_parameters();
        }
        model.changed();
      });
}

void bind_search(nb::module_& m) {
  nb::class_<train::Decoded>(m, "Decoded", "What a search has found for a sequence.")
      .def_ro("tokens", &train::Decoded::tokens, "without begin and end")
      .def_ro("log_probability", &train::Decoded::log_probability)
      .def_ro("score", &train::Decoded::score, "the log probability with the length penalty")
      .def_ro("is_whole", &train::Decoded::is_whole, "whether it ends by itself, not at max_length");
  helped(m).def("beam_search", &search, "num_sequences"_a, "next"_a, "max_length"_a, "beam_size"_a = 4,
                "length_penalty"_a = 0.6, "begin"_a = data::Vocabulary::kBegin, "end"_a = data::Vocabulary::kEnd,
                "padding"_a = data::Vocabulary::kPadding,
                R"(The best sequence of tokens for each of num_sequences, a list of Decoded.

next(prefixes int32[num_sequences * beam_size, max_length], length) gives the logits float32[..., vocabulary] of the token that
follows the first `length` ones. Candidates are compared by log probability / ((5 + n) / 6) ** length_penalty.)");
}

// Training, as a whole and step by step.
void bind_training(nb::class_<PythonModel>& model) {
  model.def(
      "train",
      [](PythonModel& self, int64_t epochs, const data::Dataset& dataset,
         const nb::typed<nb::sequence, train::Callback>& callbacks, bool sink, int64_t sink_size, int num_workers,
         const std::optional<std::variant<bool, Path>>& resume) {
        try {
          self.train(epochs, dataset, to_callbacks(callbacks),
                     {.dataset_sink_mode = sink,
                      .sink_size = sink_size,
                      .num_workers = num_workers,
                      .resume = to_resume(resume),
                      .print = print_in_python,
                      .before_batch = raise_signals,
                      .signal_of = signal_of});
        } catch (nb::python_error& error) {
          // No hook of Python's hears of it.
          if (error.matches(PyExc_SystemExit)) note_left(error.traceback());
          throw;
        }
      },
      "num_epochs"_a, "dataset"_a, "callbacks"_a = nb::make_tuple(), "dataset_sink_mode"_a = false, "sink_size"_a = -1,
      "num_workers"_a = 1, "resume"_a = nb::none(),
      R"(Trains until num_epochs epochs are done, those of a loaded checkpoint included.

resume: "auto" goes on from the newest whole checkpoint that the ModelCheckpoint among the callbacks has saved, and begins with the model as
it is where there is none; a path goes on from that checkpoint, or from the newest whole one of that directory. A line says which it
was. None and False: from the model as it is. What is trained has the bits that it would have had without the interruption.
A checkpoint without a manifest has values alone: training then begins at step 0, and says so. Raises
InvalidArgument for a checkpoint that does not fit, and NoUsableCheckpoint, which is one, where there are some of which none can be
used; as load_checkpoint(), which has a key for encrypted ones: "auto" uses the callback's.
model.train(10, rows, [tessera.ModelCheckpoint("net", "saved")], resume="auto")

dataset_sink_mode: callbacks run once per sink_size steps, -1: once an epoch. num_workers: threads that make batches
ahead. Raises InvalidArgument for data that does not fit, NonFiniteLoss for a loss that is not finite, IoError when a rank
is lost. After an exception the values are those of the last whole step, and the next train() is a new training, unless a
checkpoint is loaded before.)");
  model.def(
      "train_step",
      [](PythonModel& self, const nb::args& batch, std::optional<int64_t> global_rows) {
        std::vector<Tensor> tensors;
        for (const nb::handle item : batch) tensors.push_back(to_tensor(item));
        if (tensors.empty() || tensors[0].ndim() == 0) throw InvalidArgument("train_step: the batch has no rows");
        return self.train_step(tensors, global_rows.value_or(tensors[0].shape()[0]));
      },
      "batch"_a, "global_rows"_a = nb::none(),
      R"(One step on one global batch. Returns the loss. In data_parallel without servers each rank gives its own rows of
it, and global_rows, the rows of all ranks; else each gives the whole batch, in hybrid_parallel one of its own:
docs/python.md, Ranks.)");
}

// What a network says: its metrics, its results.
void bind_results(nb::class_<PythonModel>& model) {
  model.def(
      "eval",
      [](PythonModel& self, const data::Dataset& dataset, int num_workers, std::vector<nb::object> metrics) {
        return self.eval(dataset, num_workers, std::move(metrics));
      },
      "dataset"_a, "num_workers"_a = 1, "metrics"_a = nb::make_tuple(),
      R"(The model's metrics over the data set, by name; the same on every rank.

metrics: objects of one's own, whose update(output, label, loss) is called after each batch with the rows of all ranks.)");
  model.def(
      "averages", [](nb::handle self) { return AverageScope{nb::borrow(self)}; },
      R"(For a with statement, in which the averages of nn.ExponentialMovingAverage are in the places of the parameters.

with model.averages(): print(model.eval(valid)). Behind it the parameters have the bits that they had; in it training, saving and
loading raise InvalidArgument. Every rank enters it.)");
  model.def(
      "predict",
      [](PythonModel& self, const nb::args& inputs) {
        std::vector<Tensor> tensors;
        for (const nb::handle item : inputs) tensors.push_back(to_tensor(item));
        return self.predict(tensors);
      },
      "inputs"_a,
      "The network's result for these inputs. Where ranks share the work, as with parameter servers, every rank gives "
      "the "
      "same ones: docs/python.md, Ranks.");
  model.def(
      "translate",
      [](PythonModel& self, nb::handle sources, int64_t max_length, int64_t beam_size, double length_penalty,
         int64_t batch_size, int32_t begin, int32_t end, int32_t padding) {
        const Tensor rows = to_tensor(sources);
        const train::TranslateOptions options{{beam_size, max_length, begin, end, padding, length_penalty}, batch_size};
        return self.translate(rows, options);
      },
      "sources"_a, "max_length"_a, "beam_size"_a = 4, "length_penalty"_a = 0.6, "batch_size"_a = 32,
      "begin"_a = data::Vocabulary::kBegin, "end"_a = data::Vocabulary::kEnd, "padding"_a = data::Vocabulary::kPadding,
      R"(A list of Decoded, one for each row of sources int32[n,s]: what the network, called with (source, target), finds best.

beam_size: beginnings that the search keeps, 1: greedy. Each step computes the network again for all of max_length tokens.
Every rank calls it.)");
}

// What is compiled before it runs, and how values then lie.
void bind_compilation(nb::class_<PythonModel>& model) {
  model.def(
      "build",
      [](PythonModel& self, const data::Dataset& train, const data::Dataset* valid) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        with_unowned_cells(self.as_it_is(), [&] { self.model().build(train, valid); });
      },
      "train"_a, "valid"_a = nb::none(), "Compiles without running.");
  model.def(
      "build_predict",
      [](PythonModel& self, const nb::args& inputs) {
        const Turn turn = self.turn();
        std::vector<Type> types;
        for (const nb::handle item : inputs) types.push_back(to_tensor(item).type());
        const WithoutGil computing;
        with_unowned_cells(self.as_it_is(), [&] { self.model().build_predict(types); });
      },
      "inputs"_a,
      "Compiles the prediction for inputs like these; in semi-automatic parallelism parameters then lie as strategies "
      "say.");
  model.def_prop_ro(
      "layouts", [](PythonModel& self) { return self.as_it_is().layouts(); },
      "How parameters and states lie on the ranks: a list of checkpoint.ParameterLayout, empty before compiling.");
}

// Parameters and states, one by one.
void bind_values(nb::class_<PythonModel>& model) {
  model.def(
      "names", [](PythonModel& self) { return self.as_it_is().names(); }, "Of parameters, then of states.");
  model.def(
      "value",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        return self.model().value(name);
      },
      "name"_a, "A parameter or state. Every rank must ask where it is split.");
  model.def(
      "local_value",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        return self.model().session().values().read(name);
      },
      "name"_a, "This rank's piece of a parameter or state.");
  model.def(
      "set_local_value",
      [](PythonModel& self, const std::string& name, nb::handle value) {
        const Turn turn = self.turn();
        const Tensor piece = to_tensor(value);
        session::Session& session = self.model().session();
        if (!(piece.type() == session.values().type(name))) {
          throw InvalidArgument("this rank's piece of \"{}\" is {}, it cannot be set to {}", name,
                                session.values().type(name), piece.type());
        }
        session.set_piece(name, piece.view());
        self.changed();
      },
      "name"_a, "value"_a, "Sets this rank's piece. Every rank sets its own.");
  model.def(
      "set_value",
      [](PythonModel& self, const std::string& name, nb::handle value) {
        const Turn turn = self.turn();
        self.model().set_value(name, to_tensor(value));
        self.changed();
      },
      "name"_a, "value"_a);
}

// Files of all values.
void bind_checkpoints(nb::class_<PythonModel>& model) {
  model.def(
      "save_checkpoint",
      [](PythonModel& self, const Path& path, const nb::dict& append_info, bool integrated, bool async,
         const std::optional<nb::bytes>& key, const std::string& mode, bool averages) {
        const Turn turn = self.turn();
        const train::SaveCheckpointOptions options{.append_info = to_entries(append_info),
                                                   .integrated = integrated,
                                                   .averages = averages,
                                                   .async = async,
                                                   .encryption = to_encryption(key, mode)};
        const WithoutGil computing;
        return Path{self.model().save_checkpoint(path.bytes, options)};
      },
      "path"_a, "append_info"_a = nb::dict(), "integrated"_a = true, "async_save"_a = false, "enc_key"_a = nb::none(),
      "enc_mode"_a = "AES-GCM", "averages"_a = false,
      R"(Parameters, states, step, data position: training resumes exactly, on any number of ranks. Returns the path.

integrated: one file of whole values; else each rank writes the slices that it holds, those that name one directory into one
checkpoint. async_save: a thread writes a copy; the next save, and finish_saves(), wait for it and raise its error. averages: those
of nn.ExponentialMovingAverage alone, as parameters, for load_parameters().)");
  model.def(
      "finish_saves",
      [](PythonModel& self) {
        const Turn turn = self.turn();
        const WithoutGil computing;
        self.as_it_is().finish_saves();
      },
      "Waits for a save that a thread is writing, and raises its error.");
  model.def(
      "load_checkpoint",
      [](PythonModel& self, const Path& path, const std::optional<nb::bytes>& key, const std::string& mode,
         bool accept_other_jobs) {
        const Turn turn = self.turn();
        {
          const train::LoadCheckpointOptions options{.decryption = to_encryption(key, mode),
                                                     .accept_other_jobs = accept_other_jobs};
          const WithoutGil computing;
          self.model().load_checkpoint(path.bytes, options);
        }
        self.changed();
      },
      "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM", "accept_other_jobs"_a = false,
      R"(Takes all values of a checkpoint that any number of ranks saved, whole or in slices, and where training stood.

path: a checkpoint, or a directory, whose newest one is taken. After build() each rank reads only what it holds. Raises
InvalidArgument listing missing, unexpected and mis-shaped names, or where the checkpoint is of a training with another
job_name, optimizer or network, unless accept_other_jobs; then nothing has changed. A table of learning rates stays the model's
own, so that a training can be made longer.)");
  model.def(
      "load_parameters",
      [](PythonModel& self, const Path& path, const std::optional<nb::bytes>& key, const std::string& mode, bool strict,
         nb::handle only, nb::handle rename) {
        const Turn turn = self.turn();
        train::LoadedParameters loaded;
        {
          const train::LoadParametersOptions options{.decryption = to_encryption(key, mode),
                                                     .strict = strict,
                                                     .only = to_patterns(only),
                                                     .rename = to_rename(rename),
                                                     .renamed = renamed_by(rename)};
          const WithoutGil computing;
          loaded = self.model().load_parameters(path.bytes, options);
        }
        self.changed();
        return loaded;
      },
      "path"_a, "dec_key"_a = nb::none(), "dec_mode"_a = "AES-GCM", nb::kw_only(), "strict"_a = true,
      "only"_a = nb::none(), "rename"_a = nb::none(),
      nb::sig(
          "def load_parameters(self, path: str | bytes | os.PathLike, dec_key: bytes | None = None, dec_mode: str = "
          "'AES-GCM', *, strict: bool = True, only: str | collections.abc.Sequence[str] | None = None, rename: "
          "collections.abc.Mapping[str, str | None] | collections.abc.Callable[[str], str | None] | None = None) -> "
          "LoadedParameters"),
      R"(The network's parameters only, of any training. Returns what was loaded and what not, as LoadedParameters.

strict=False: parameters that the checkpoint lacks keep their values. only: a pattern, or several, of the parameters that are
loaded (see Cell.freeze). rename: what the network calls the checkpoint's values, a function of the name, or a dict of names
or of the cells above them, {"model.body": "backbone", "model": ""}, of which the longest holds, and of which
the checkpoint must have a value each; None leaves a value out.)");
}

// What there is to know of a compiled model and its last step.
void bind_facts(nb::class_<PythonModel>& model) {
  model.def_prop_ro(
      "was_skipped", [](PythonModel& self) { return self.as_it_is().was_skipped(); },
      "Whether the latest step was skipped because a gradient or the loss was not finite.");
  model.def_prop_ro(
      "arena_bytes", [](PythonModel& self) { return self.as_it_is().session().arena_bytes(); },
      "Of this rank: parameters, states and what a step needs; once compiled.");
  model.def_prop_ro(
      "spilled_bytes", [](PythonModel& self) { return self.as_it_is().session().values().spilled_bytes(); },
      "Of these the bytes that lie in a file: tables and states of a server that may not have them all in memory.");
  model.def(
      "num_replicas",
      [](PythonModel& self, const std::string& name) {
        const Turn turn = self.turn();
        session::Session& session = self.as_it_is().session();
        const auto layouts = session.layouts(name);
        if (layouts.empty()) return session.context().size();
        // Not by the sizes of the pieces: rows may be dealt unevenly, and there may be none.
        int replicas = 0;
        for (const mesh::Layout& layout : layouts) {
          int of_stage = 1;
          for (int axis = 0; axis < layout.mesh.num_axes(); ++axis) {
            if (!layout.sharding.splits(axis)) of_stage *= layout.mesh.axis(axis).size;
          }
          replicas += of_stage;
        }
        return replicas;
      },
      "name"_a, "How many ranks hold the same piece of a parameter; once compiled.");
  model.def_prop_ro(
      "step", [](PythonModel& self) { return self.as_it_is().step(); }, "Steps since training began.");
  model.def(
      "graph_text",
      [](PythonModel& self, const data::Dataset& dataset) {
        const Turn turn = self.turn();
        std::vector<session::InputSpec> inputs;
        for (const auto& column : dataset.columns()) inputs.push_back({column.name, column.type});
        return ir::print(self.as_it_is().trace_train(inputs));
      },
      "dataset"_a, "The logical graph of the training step.");
}

void bind_model(nb::module_& m) {
  static const std::string doc = R"(Trains a network on one device or on many.

Model(network, loss, optimizer): the last column of a data set is the label, which goes to the loss with what the network
makes of the others. Without a loss the network's own result is the loss. metrics: accuracy, top_K_accuracy
(K a number), precision, recall, f1, auc, loss, mae, mse. sliced_parameters=True: once compiled, a parameter that is split over ranks has shape and
value of this rank's slice, also when the model is gone; set_data takes a slice or the whole. states: those that optimizer.state_parameters() gives; they
start as they are, and follow what is trained. See help(Model.train). Further options:

)" + option_help();
  auto model = nb::class_<PythonModel>(m, "Model", doc.c_str(), nb::dynamic_attr(), nb::is_weak_referenceable());
  model.def("__setattr__", &set_unless_option, "name"_a, "value"_a.none());
  // The options of C++ have no arguments of their own here: the list of them gives the signature, too.
  static const std::string signature = model_signature();
  model.def(
      "__init__",
      [](nb::handle self, nn::Cell& network, nn::Cell* loss, nn::Optimizer* optimizer,
         const std::vector<std::string>& metrics, bool sliced_parameters, const std::vector<nn::Parameter*>& states,
         const nb::kwargs& given) {
        train::ModelOptions options = model_options(given);
        for (const auto& name : metrics) options.metrics.push_back(train::make_metric(name));
        auto* made = new (nb::inst_ptr<PythonModel>(self))
            PythonModel(network, loss, optimizer, options, sliced_parameters, states);
        nb::inst_mark_ready(self);
        python_models().emplace_back(&made->as_it_is(), self);
      },
      "network"_a, "loss"_a = nb::none(), "optimizer"_a = nb::none(), "metrics"_a = nb::make_tuple(), nb::kw_only(),
      "sliced_parameters"_a = false, "states"_a = nb::make_tuple(), "options"_a, nb::sig(signature.c_str()),
      nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>());
  bind_training(model);
  bind_results(model);
  bind_compilation(model);
  bind_values(model);
  bind_checkpoints(model);
  bind_facts(model);
}

}  // namespace

void bind_train(nb::module_& m) {
  m.def("_model_options", &options_as_dict, "What each option of a Model does, and the parallel modes that read it.");
  m.def("_end_threads", &end_threads, "timeout_ms"_a,
        "As the process ends: stops other threads that compute. False where one does not stop in time.");
  m.def("_finish_all_saves", &finish_all_saves, "As the process ends, before Python's objects go.");
  m.def("_leave_with_all_models", &leave_with_all_models, "As the process leaves its job, or has made it fail.");
  m.def("_begin_child", &begin_child, "In a child that fork() has just made: exit() will end it at once.");
  bind_search(m);
  bind_loaded(m);
  bind_averages(m);
  bind_callbacks(m);
  bind_model(m);
}

}  // namespace tessera::python
