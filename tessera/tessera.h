// The public face of Tessera: what a program that trains a network includes. Everything in these headers is documented
// where it is declared. What looks behind a training, at graphs, plans and their search, sessions and files of
// checkpoints, stands in tessera/engine.h.
//
// A program reads from the top down: it joins a job, describes its data, makes a network, a loss and an optimizer, and
// gives them to a Model, which trains, evaluates, predicts, saves and loads. examples/resnet50_cifar10.cc is one.
#pragma once

#if __cplusplus < 202002L
#error "Tessera needs C++20: compile with -std=c++20, or set_target_properties(... CXX_STANDARD 20) in CMake"
#endif

// What is thrown, the log, and texts of numbers.
#include "tessera/base/error.h"
#include "tessera/base/files/standard_output.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"

// Tensors that other libraries of the process give or take, without a copy.
#include "tessera/tensor/dlpack/dlpack.h"

// Ranks: a program is run on each of them, and a Context says which one it is.
#include "tessera/cluster/launch.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/cluster/run.h"
#include "tessera/cluster/scheduler_process.h"
#include "tessera/cluster/termination.h"
#include "tessera/cluster/threads.h"

// Data: sources, transforms, batches.
#include "tessera/data/batch_iterator.h"
#include "tessera/data/dataset.h"
#include "tessera/data/image_file.h"
#include "tessera/data/sets/cifar10.h"
#include "tessera/data/sets/image_folder.h"
#include "tessera/data/sets/mnist.h"
#include "tessera/data/sets/synthetic_cifar10.h"
#include "tessera/data/text/bleu.h"
#include "tessera/data/text/sentence_pairs.h"
#include "tessera/data/text/synthetic_translation.h"
#include "tessera/data/text/translation.h"
#include "tessera/data/text/vocabulary.h"
#include "tessera/data/transforms.h"

// Networks: cells are made of layers, of other cells, and of functions on values; collectives are among them.
#include "tessera/nn/cell.h"
#include "tessera/nn/container.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/layers/pooling.h"
#include "tessera/nn/layers/recurrent.h"
#include "tessera/nn/transformer/all_parts.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/agree/rank_group.h"

// Networks that there are.
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/llama.h"
#include "tessera/nn/models/models.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/models/translator.h"

// Losses and optimizers.
#include "tessera/nn/cross_entropy.h"
#include "tessera/nn/gradients/clipping.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adagrad.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/asgd.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/lamb.h"
#include "tessera/nn/optimizers/learning_rate.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/rmsprop.h"
#include "tessera/nn/optimizers/rprop.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/nn/tuning/exponential_moving_average.h"
#include "tessera/nn/tuning/parameter_patterns.h"
#include "tessera/nn/tuning/rate_schedule.h"

// Training: the model, what happens around its steps, what is measured, translating with it.
#include "tessera/train/callbacks.h"
#include "tessera/train/logs/csv_log.h"
#include "tessera/train/logs/json_log.h"
#include "tessera/train/logs/progress_bar.h"
#include "tessera/train/logs/tensor_board.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"
#include "tessera/train/monitors/monitors.h"
#include "tessera/train/monitors/record_values.h"
#include "tessera/train/traces/trace_callback.h"
#include "tessera/train/translation/translate.h"
