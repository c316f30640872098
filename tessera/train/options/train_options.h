// How a model is trained, evaluated, saved and loaded: what its calls are told.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/encryption.h"

namespace tessera::train {

struct TrainOptions {
  // Callbacks run once per `sink_size` steps instead of every step.
  bool dataset_sink_mode = false;
  int64_t sink_size = -1;  // -1: the whole epoch; another number needs dataset_sink_mode
  int num_workers = 1;     // threads that make batches ahead
  // From what Model::train goes on, before its first step: a path as Model::load_checkpoint takes it; "auto", the
  // newest whole checkpoint that its ModelCheckpoint has saved, under its prefix or one that follows that, or, where
  // there is none at all, from the model as it is; "": from the model as it is. A path that is called auto is "./auto".
  std::string resume = {};
  // Where the one line goes that says what `resume` has found, without its end; on rank 0, and on each rank that trains
  // by itself. Empty: to standard output.
  std::function<void(const std::string&)> print = {};
  // Called before each batch, whatever callbacks there are: what it throws ends the call.
  std::function<void()> before_batch = {};
  // The signal that an exception of the program's own stands for, "SIGINT" of Python's KeyboardInterrupt, or "": then
  // it has failed. Must not throw.
  std::function<std::string(const std::exception_ptr&)> signal_of = {};
};

// How Model::save_checkpoint saves.
struct SaveCheckpointOptions {
  // Information after the values, such as epoch_num and step_num.
  std::vector<checkpoint::Entry> append_info = {};
  // True: one file of whole values, as one device would write it. False: each rank writes the slices that it holds, at
  // once and without sending anything; ranks that name one directory write each slice once, into one checkpoint.
  bool integrated = true;
  // The averages of the parameters alone, in their places and dtypes (nn/tuning/exponential_moving_average.h), beside
  // the parameters that have none; no state. load_parameters() takes it as any other checkpoint. Before the first
  // update they are the parameters. Throws InvalidArgument where the optimizer keeps none.
  bool averages = false;
  // Copy the values that this rank writes and return; a thread writes them while training goes on. One save is under
  // way at a time: the next one waits for it, and throws its error.
  bool async = false;
  checkpoint::Encryption encryption = {};
  // Called before anything is written, on the first rank of each directory, by the thread that writes; where it throws,
  // no rank writes.
  std::function<void()> before_write = {};
  // Called when the checkpoint is committed, before the save counts as done; on the first rank of each directory, by
  // the thread that wrote.
  std::function<void()> after_commit = {};
};

// How Model::load_checkpoint loads.
struct LoadCheckpointOptions {
  checkpoint::Encryption decryption = {};
  // Go on with the checkpoint of another training: of another name (ModelOptions::job_name), of an optimizer of another
  // kind, or of a network that computes something else with parameters of equal names and shapes.
  bool accept_other_jobs = false;
  // Of a directory only the checkpoints of this prefix and those that follow it (PREFIX_1); empty: all.
  std::string prefix = {};
};

// How Model::load_parameters loads. The same on all ranks.
struct LoadParametersOptions {
  checkpoint::Encryption decryption = {};
  // False: parameters that the checkpoint lacks keep their values. What is in both must fit all the same.
  bool strict = true;
  // Patterns of the parameters that are loaded (nn/tuning/parameter_patterns.h); none: all. The others keep their
  // values.
  std::vector<std::string> only = {};
  // What the network calls a value of that name in the checkpoint; "": it has none of that name. Empty: the same.
  std::function<std::string(const std::string& name)> rename = {};
  // The names that `rename` is told of, or those of cells above them, of which the checkpoint must have a value each.
  std::vector<std::string> renamed = {};
};

// What Model::load_parameters has done.
struct LoadedParameters {
  std::vector<std::string> loaded;    // of the network
  std::vector<std::string> missing;   // of the network: they were to be loaded, and the checkpoint lacks them
  std::vector<std::string> left_out;  // of the checkpoint, as they are called there: its tensors that were not loaded
};

}  // namespace tessera::train
