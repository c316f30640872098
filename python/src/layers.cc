// The cells, losses and networks that come with Tessera.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/cells.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

nn::Size2 to_size(nb::handle object) {
  const Ints sizes = to_ints(object);
  if (sizes.size() == 1) return sizes[0];
  if (sizes.size() == 2) return {sizes[0], sizes[1]};
  throw InvalidArgument("a size is one number or (height, width), got {} numbers", sizes.size());
}

nn::Padding2 to_padding(nb::handle object) {
  const Ints sizes = to_ints(object);
  if (sizes.size() == 1) return sizes[0];
  if (sizes.size() == 4) return {sizes[0], sizes[1], sizes[2], sizes[3]};
  throw InvalidArgument("padding is one number or (top, bottom, left, right), got {} numbers", sizes.size());
}

std::optional<nn::Init> to_optional_init(nb::handle object) {
  return object.is_none() ? std::nullopt : std::optional(to_init(object));
}

void bind_linear(nb::module_& m) {
  nb::class_<nn::Dense, nn::Cell>(m, "Dense", R"(x [..., in_channels] -> x W^T + b [..., out_channels].

Parameters: weight [out_channels, in_channels], and bias [out_channels] if has_bias. bias_init: None: zeros.)")
      .def(
          "__init__",
          [](nn::Dense* self, int64_t in, int64_t out, nb::handle weight, nb::handle bias, bool has_bias,
             const std::optional<std::string>& activation) {
            new (self) nn::Dense(in, out,
                                 {.weight_init = to_init(weight),
                                  .bias_init = to_optional_init(bias),
                                  .has_bias = has_bias,
                                  .activation = activation.value_or("")});
          },
          "in_channels"_a, "out_channels"_a, "weight_init"_a = "normal", "bias_init"_a = nb::none(),
          "has_bias"_a = true, "activation"_a = nb::none());
  nb::class_<nn::Embedding, nn::Cell>(m, "Embedding",
                                      R"(ids i32 or i64 [...] -> rows of the table [..., embedding_size].

An id outside [0, vocab_size) raises InvalidArgument. Parameter: embedding_table [vocab_size, embedding_size].)")
      .def(
          "__init__",
          [](nn::Embedding* self, int64_t vocab, int64_t size, nb::handle table) {
            new (self) nn::Embedding(vocab, size, {.embedding_table = to_init(table)});
          },
          "vocab_size"_a, "embedding_size"_a, "embedding_table"_a = "normal");
}

// Of Conv1d and its transpose.
template <typename Layer>
void bind_sequence_filters(nb::module_& m, const char* name, const char* doc) {
  nb::class_<Layer, nn::Cell>(m, name, doc)
      .def(
          "__init__",
          [](Layer* self, int64_t in, int64_t out, int64_t kernel, int64_t stride, const std::string& mode,
             int64_t padding, int64_t dilation, int64_t group, bool has_bias, nb::handle weight, nb::handle bias) {
            new (self) Layer(in, out,
                             {.kernel = kernel,
                              .stride = stride,
                              .pad_mode = mode,
                              .padding = padding,
                              .dilation = dilation,
                              .group = group,
                              .has_bias = has_bias,
                              .weight_init = to_optional_init(weight),
                              .bias_init = to_optional_init(bias)});
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "pad_mode"_a = "same", "padding"_a = 0,
          "dilation"_a = 1, "group"_a = 1, "has_bias"_a = false, "weight_init"_a = nb::none(),
          "bias_init"_a = nb::none());
}

void bind_other_filters(nb::module_& m) {
  bind_sequence_filters<nn::Conv1d>(m, "Conv1d", R"(x f32[n, in_channels, l] -> f32[n, out_channels, l'].

pad_mode: same (ceil(size / stride)), valid, or pad with `padding` on both sides. weight_init, bias_init: None: even in
+-1 / sqrt(fan_in). Parameters: weight [out_channels, in_channels / group, 1, kernel_size], and bias if has_bias.)");
  bind_sequence_filters<nn::Conv1dTranspose>(
      m, "Conv1dTranspose",
      R"(The transpose of Conv1d: x f32[n, in_channels, l] -> f32[n, out_channels, l'].

Settings as Conv1d has them. Parameters: weight [in_channels, out_channels / group, 1, kernel_size], and bias if has_bias.)");
  nb::class_<nn::Conv2dTranspose, nn::Cell>(
      m, "Conv2dTranspose",
      R"(The transpose of Conv2d: x f32[n, in_channels, h, w] -> f32[n, out_channels, h', w'].

h' = h stride with pad_mode same, h stride + max(reach - stride, 0) with valid, h stride + reach - stride - padding with pad,
reach being dilation (kernel_size - 1) + 1. output_padding: rows and columns of zeros behind that, with pad only. weight_init,
bias_init: None: even in +-1 / sqrt(fan_in). Parameters: weight [in_channels, out_channels / group, kh, kw], and bias if
has_bias.)")
      .def(
          "__init__",
          [](nn::Conv2dTranspose* self, int64_t in, int64_t out, nb::handle kernel, nb::handle stride,
             const std::string& mode, nb::handle padding, nb::handle output_padding, nb::handle dilation, int64_t group,
             bool has_bias, nb::handle weight, nb::handle bias) {
            new (self) nn::Conv2dTranspose(in, out,
                                           {.kernel = to_size(kernel),
                                            .stride = to_size(stride),
                                            .pad_mode = mode,
                                            .padding = to_padding(padding),
                                            .output_padding = to_size(output_padding),
                                            .dilation = to_size(dilation),
                                            .group = group,
                                            .has_bias = has_bias,
                                            .weight_init = to_optional_init(weight),
                                            .bias_init = to_optional_init(bias)});
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "pad_mode"_a = "same", "padding"_a = 0,
          "output_padding"_a = 0, "dilation"_a = 1, "group"_a = 1, "has_bias"_a = false, "weight_init"_a = nb::none(),
          "bias_init"_a = nb::none());
}

void bind_images(nb::module_& m) {
  nb::class_<nn::Conv2d, nn::Cell>(m, "Conv2d", R"(x f32[n, in_channels, h, w] -> f32[n, out_channels, h', w'].

Sizes: one number or (height, width). pad_mode: same (ceil(size / stride)), valid, or pad with `padding`, one number or
(top, bottom, left, right). Parameters: weight [out_channels, in_channels / group, kh, kw], and bias if has_bias. bias_init: None:
zeros.)")
      .def(
          "__init__",
          [](nn::Conv2d* self, int64_t in, int64_t out, nb::handle kernel, nb::handle stride, const std::string& mode,
             nb::handle padding, nb::handle dilation, int64_t group, bool has_bias, nb::handle weight,
             nb::handle bias) {
            new (self) nn::Conv2d(in, out,
                                  {.kernel = to_size(kernel),
                                   .stride = to_size(stride),
                                   .pad_mode = mode,
                                   .padding = to_padding(padding),
                                   .dilation = to_size(dilation),
                                   .group = group,
                                   .has_bias = has_bias,
                                   .weight_init = to_init(weight),
                                   .bias_init = to_optional_init(bias)});
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "pad_mode"_a = "same", "padding"_a = 0,
          "dilation"_a = 1, "group"_a = 1, "has_bias"_a = false, "weight_init"_a = "normal",
          "bias_init"_a = nb::none());
  nb::class_<nn::MaxPool2d, nn::Cell>(m, "MaxPool2d", "x [n,c,h,w] -> [n,c,h',w']: the largest element of each window.")
      .def(
          "__init__",
          [](nn::MaxPool2d* self, nb::handle kernel, nb::handle stride, const std::string& mode, nb::handle padding) {
            new (self) nn::MaxPool2d({to_size(kernel), to_size(stride), mode, to_padding(padding)});
          },
          "kernel_size"_a = 1, "stride"_a = 1, "pad_mode"_a = "valid", "padding"_a = 0);
  nb::class_<nn::AvgPool2d, nn::Cell>(m, "AvgPool2d", "x [n,c,h,w] -> [n,c,h',w']: the average of each window.")
      .def(
          "__init__",
          [](nn::AvgPool2d* self, nb::handle kernel, nb::handle stride, const std::string& mode, nb::handle padding,
             bool count) {
            new (self) nn::AvgPool2d({to_size(kernel), to_size(stride), mode, to_padding(padding), count});
          },
          "kernel_size"_a = 1, "stride"_a = 1, "pad_mode"_a = "valid", "padding"_a = 0, "count_include_pad"_a = false);
  nb::class_<nn::AdaptiveAvgPool2d, nn::Cell>(
      m, "AdaptiveAvgPool2d",
      "x [n,c,h,w] -> [n,c,oh,ow]: averages of windows that cover the image; None keeps the image's own size.")
      .def(nb::init<std::optional<int64_t>, std::optional<int64_t>>(), "height"_a.none(), "width"_a.none());
}

void bind_normalization(nb::module_& m) {
  nb::class_<nn::BatchNorm2d, nn::Cell>(m, "BatchNorm2d",
                                        R"(x f32[n,c,h,w], each channel brought to mean 0 and variance 1.

Ioffe and Szegedy, 2015. moving = momentum * moving + (1 - momentum) * batch. use_batch_statistics: None: the batch's in
training, the moving ones else. Parameters moving_mean, moving_variance, gamma, beta, all [c].)")
      .def(
          "__init__",
          [](nn::BatchNorm2d* self, int64_t features, double eps, double momentum, bool affine, nb::handle gamma,
             nb::handle beta, nb::handle mean, nb::handle variance, std::optional<bool> use_batch_statistics) {
            new (self) nn::BatchNorm2d(features, {.eps = eps,
                                                  .momentum = momentum,
                                                  .affine = affine,
                                                  .gamma_init = to_init(gamma),
                                                  .beta_init = to_init(beta),
                                                  .moving_mean_init = to_init(mean),
                                                  .moving_var_init = to_init(variance),
                                                  .use_batch_statistics = use_batch_statistics});
          },
          "num_features"_a, "eps"_a = 1e-5, "momentum"_a = 0.9, "affine"_a = true, "gamma_init"_a = "ones",
          "beta_init"_a = "zeros", "moving_mean_init"_a = "zeros", "moving_var_init"_a = "ones",
          "use_batch_statistics"_a = nb::none());
  nb::class_<nn::BatchNorm1d, nn::BatchNorm2d>(m, "BatchNorm1d", "The same as BatchNorm2d, of x f32[n,c].")
      .def(
          "__init__",
          [](nn::BatchNorm1d* self, int64_t features, double eps, double momentum, bool affine, nb::handle gamma,
             nb::handle beta, nb::handle mean, nb::handle variance, std::optional<bool> use_batch_statistics) {
            new (self) nn::BatchNorm1d(features, {.eps = eps,
                                                  .momentum = momentum,
                                                  .affine = affine,
                                                  .gamma_init = to_init(gamma),
                                                  .beta_init = to_init(beta),
                                                  .moving_mean_init = to_init(mean),
                                                  .moving_var_init = to_init(variance),
                                                  .use_batch_statistics = use_batch_statistics});
          },
          "num_features"_a, "eps"_a = 1e-5, "momentum"_a = 0.9, "affine"_a = true, "gamma_init"_a = "ones",
          "beta_init"_a = "zeros", "moving_mean_init"_a = "zeros", "moving_var_init"_a = "ones",
          "use_batch_statistics"_a = nb::none());
  nb::class_<nn::LayerNorm, nn::Cell>(
      m, "LayerNorm", R"(x [..., normalized_shape] -> the same, each sample brought to mean 0 and variance 1.

Ba et al., 2016. Parameters gamma and beta, both of normalized_shape.)")
      .def(
          "__init__",
          [](nn::LayerNorm* self, nb::handle shape, double eps, nb::handle gamma, nb::handle beta) {
            new (self) nn::LayerNorm(Shape(to_ints(shape)),
                                     {.eps = eps, .gamma_init = to_init(gamma), .beta_init = to_init(beta)});
          },
          "normalized_shape"_a, "eps"_a = 1e-5, "gamma_init"_a = "ones", "beta_init"_a = "zeros");
}

void bind_activations(nb::module_& m) {
  nb::class_<nn::ReLU, nn::Cell>(m, "ReLU", "max(x, 0), element by element.").def(nb::init<>());
  nb::class_<nn::Sigmoid, nn::Cell>(m, "Sigmoid", "1 / (1 + exp(-x)), element by element.").def(nb::init<>());
  nb::class_<nn::Tanh, nn::Cell>(m, "Tanh", "tanh(x), element by element.").def(nb::init<>());
  nb::class_<nn::GELU, nn::Cell>(m, "GELU", "x * P(X <= x) for a standard normal X: Hendrycks and Gimpel, 2016.")
      .def(nb::init<bool>(), "approximate"_a = true);
  nb::class_<nn::Softmax, nn::Cell>(m, "Softmax", "exp(x) / sum of exp(x) along an axis.")
      .def(nb::init<int64_t>(), "axis"_a = -1);
  nb::class_<nn::Flatten, nn::Cell>(m, "Flatten", "[n, ...] -> [n, product of the rest].").def(nb::init<>());
  nb::class_<nn::Dropout, nn::Cell>(
      m, "Dropout", "Training: each element is kept with probability keep_prob and divided by it, else 0.")
      .def(nb::init<double>(), "keep_prob"_a = 0.5);
}

void bind_losses(nb::module_& m) {
  nb::class_<nn::SoftmaxCrossEntropyWithLogits, nn::Cell>(m, "SoftmaxCrossEntropyWithLogits",
                                                          R"(-sum of label * log softmax(logits).

logits f32[n,c]; label i32[n] if sparse, else f32[n,c]. f32[n] for reduction "none", else its "mean" or "sum", f32[]. Training
with "none" shows the mean and takes the gradient of the sum: a learning rate then counts times the rows of a batch.)")
      .def(
          "__init__",
          [](nn::SoftmaxCrossEntropyWithLogits* self, bool sparse, const std::string& reduction) {
            new (self) nn::SoftmaxCrossEntropyWithLogits({.sparse = sparse, .reduction = reduction});
          },
          "sparse"_a = false, "reduction"_a = "none");
  nb::class_<nn::SoftmaxCrossEntropyExpand, nn::Cell>(
      m, "SoftmaxCrossEntropyExpand",
      R"(The mean cross entropy, written in small operators that can be split one by one.

logits f32[n,c]; label i32[n] if sparse, else f32[n,c]. Returns f32[].)")
      .def(
          "__init__",
          [](nn::SoftmaxCrossEntropyExpand* self, bool sparse, double eps) {
            new (self) nn::SoftmaxCrossEntropyExpand({.sparse = sparse, .eps = eps});
          },
          "sparse"_a = false, "eps"_a = 1e-24);
  nb::class_<nn::CrossEntropy, nn::Cell>(m, "CrossEntropy", R"(The cross entropy of logits f32[n,c,...].

label: class numbers i32[n,...], of which ignore_index, None: -100, does not count, or distributions f32[n,c,...], which have none.
weight: of each class, or nothing. label_smoothing: the part of a label that is spread over all classes. reduction: none, mean or
sum. is_strict=False: an ignore_index beside distributions is taken, as MindSpore takes it.)")
      .def(
          "__init__",
          [](nn::CrossEntropy* self, const std::vector<double>& weight, std::optional<int64_t> ignore,
             const std::string& reduction, double smoothing, bool is_strict) {
            new (self) nn::CrossEntropy({weight, ignore, reduction, smoothing, is_strict});
          },
          "weight"_a = std::vector<double>(), "ignore_index"_a = nb::none(), "reduction"_a = "mean",
          "label_smoothing"_a = 0.0, "is_strict"_a = true);
  nb::class_<nn::MSELoss, nn::Cell>(m, "MSELoss", "(logits - label)^2; reduction none, mean or sum.")
      .def(
          "__init__",
          [](nn::MSELoss* self, const std::string& reduction) { new (self) nn::MSELoss({.reduction = reduction}); },
          "reduction"_a = "mean");
  nb::class_<nn::L1Loss, nn::Cell>(m, "L1Loss", "|logits - label|; reduction none, mean or sum.")
      .def(
          "__init__",
          [](nn::L1Loss* self, const std::string& reduction) { new (self) nn::L1Loss({.reduction = reduction}); },
          "reduction"_a = "mean");
}

}  // namespace

void bind_layers(nb::module_& m) {
  bind_linear(m);
  bind_images(m);
  bind_other_filters(m);
  bind_normalization(m);
  bind_activations(m);
  bind_losses(m);
  helped(m).def(
      "make_model",
      [](const std::string& name, int64_t classes) -> std::shared_ptr<nn::Cell> {
        return nn::make_model(name, classes);
      },
      "name"_a, "num_classes"_a, "A built-in network by name. Raises InvalidArgument listing them.");
  helped(m).def(
      "lenet5",
      [](int64_t classes, int64_t channels) -> std::shared_ptr<nn::Cell> { return nn::lenet5(classes, channels); },
      "num_classes"_a = 10, "image_channels"_a = 3,
      "x f32[n,image_channels,32,32] -> logits f32[n,num_classes]: LeNet-5, LeCun et al., 1998, with rectifiers and "
      "maximum pooling.");
  helped(m).def(
      "resnet50",
      [](int64_t classes, bool usual_values, double momentum) -> std::shared_ptr<nn::Cell> {
        return nn::resnet50(classes,
                            {.initial_values = usual_values ? nn::InitialValues::kUsual : nn::InitialValues::kReference,
                             .batch_norm_momentum = momentum});
      },
      "num_classes"_a, "usual_values"_a = false, "batch_norm_momentum"_a = 0.99,
      "x f32[n,3,h,w] -> logits f32[n,num_classes]: He et al., CVPR 2016, as the tutorials build it.");
}

}  // namespace tessera::python
