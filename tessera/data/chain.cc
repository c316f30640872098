#include "tessera/data/chain.h"

#include <algorithm>

namespace tessera::data {
namespace {

Draws draws_of(const SampleKey& key, uint64_t stream) {
  return {{key.seed, stream, static_cast<uint64_t>(key.epoch)}, static_cast<uint64_t>(key.position)};
}

// Where the fused pass writes: channel, row and column strides of the output, whatever its logical order.
struct Target {
  float* data;
  int64_t channel, row, column;
  bool planar() const { return column == 1; }
};

Target target_of(const TensorView& output, bool channels_first) {
  const Strides& s = output.strides;
  auto* data = static_cast<float*>(output.data);
  return channels_first ? Target{data, s[0], s[1], s[2]} : Target{data, s[2], s[0], s[1]};
}

bool is_channels_first(const TransformOp& op) {
  const auto* normalize = dynamic_cast<const Normalize*>(&op);
  return normalize != nullptr && normalize->channels_first;
}

}  // namespace

Chain::Chain(const Type& input, std::vector<ChainLink> links)
    : input_(input), output_(input), links_(std::move(links)) {
  for (size_t i = 0; i < links_.size();) {
    Step step{output_, output_, links_[i], nullptr};
    size_t taken = match_image_pass(links_, i, output_, step);
    if (taken == 0) {
      step.output = links_[i].transform.output_type(output_);
      taken = 1;
    }
    output_ = step.output;
    steps_.push_back(std::move(step));
    i += taken;
  }
}

size_t Chain::match_image_pass(const std::vector<ChainLink>& links, size_t begin, const Type& input, Step& step) {
  if (input.dtype != DType::kU8 || input.shape.ndim() != 3 || input.shape[2] != 3) return 0;
  auto pass = std::make_shared<ImagePass>();
  size_t next = begin;
  Type type = input;
  const auto take = [&]<typename Op>(const Op*& slot) {
    if (next == links.size()) return false;
    slot = dynamic_cast<const Op*>(&links[next].transform.op());
    if (slot == nullptr) return false;
    type = slot->output_type(type);
    ++next;
    return true;
  };
  if (take(pass->crop)) pass->crop_stream = links[next - 1].stream;
  pass->cut = {type.shape[0], type.shape[1]};
  if (take(pass->flip)) pass->flip_stream = links[next - 1].stream;
  take(pass->resize);
  pass->size = {type.shape[0], type.shape[1]};
  take(pass->rescale);
  const bool is_planar = next < links.size() && is_channels_first(links[next].transform.op());
  if (!is_planar) take(pass->normalize);
  // Rounding to f32 is what ends the pass; without it there is little to gain.
  if (pass->rescale == nullptr && pass->normalize == nullptr) return 0;
  take(pass->hwc2chw);
  if (next - begin < 2) return 0;

  if (pass->resize != nullptr) {
    pass->rows = make_taps(pass->cut.height, pass->size.height);
    pass->columns = make_taps(pass->cut.width, pass->size.width);
    pass->row_used.assign(static_cast<size_t>(pass->cut.height), 0);
    for (const Tap& tap : pass->rows) {
      pass->row_used[static_cast<size_t>(tap.first)] = 1;
      pass->row_used[static_cast<size_t>(tap.second)] = 1;
    }
  }
  if (pass->rescale != nullptr) {
    pass->scale = static_cast<float>(pass->rescale->scale);
    pass->shift = static_cast<float>(pass->rescale->shift);
  }
  const auto width = static_cast<size_t>(pass->size.width);
  for (size_t i = 0; i < 3 * width; ++i) {
    const auto mean = [&](size_t c) { return pass->normalize == nullptr ? 0.0F : pass->normalize->mean_of(c); };
    const auto inverse = [&](size_t c) {
      return pass->normalize == nullptr ? 1.0F : pass->normalize->inverse_std_of(c);
    };
    pass->mean.push_back(mean(i % 3));
    pass->inverse_std.push_back(inverse(i % 3));
    pass->planar_mean.push_back(mean(i / width));
    pass->planar_inverse_std.push_back(inverse(i / width));
  }
  step.output = type;
  step.pass = std::move(pass);
  return next - begin;
}

Chain::Workspace Chain::make_workspace() const {
  Workspace workspace;
  size_t window = 0, row = 0, wide_row = 0, wide = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    // Number i is the output of step i: the next one's input, or the dense form of a strided output.
    workspace.values.emplace_back(step.output);
    if (step.pass == nullptr) continue;
    const auto cut_row = static_cast<size_t>(3 * step.pass->cut.width);
    const auto out_row = static_cast<size_t>(3 * step.pass->size.width);
    window = std::max(window, cut_row * static_cast<size_t>(step.pass->cut.height));
    row = std::max(row, cut_row);
    wide_row = std::max(wide_row, out_row);
    if (step.pass->resize != nullptr) wide = std::max(wide, out_row * static_cast<size_t>(step.pass->cut.height));
  }
  // One element more than is used: vectors of four lanes on pixels of three channels.
  workspace.window.resize(window);
  workspace.row.resize(row + 1);
  workspace.wide_row.resize(wide_row + 1);
  workspace.wide.resize(wide + 1);
  return workspace;
}

void Chain::run(const TensorView& input, const TensorView& output, const SampleKey& key, Workspace& workspace) const {
  TensorView value = input;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const bool last = i + 1 == steps_.size();
    const TensorView dense = workspace.values[i].view();
    if (step.pass != nullptr) {
      const TensorView target = last ? output : dense;
      const Target place = target_of(target, step.pass->hwc2chw != nullptr);
      if (place.planar() || (place.channel == 1 && place.column == 3)) {
        run_image_pass(step, value, target, key, workspace);
        if (last) return;
      } else {
        run_image_pass(step, value, dense, key, workspace);
      }
    } else if (last && output.is_dense()) {
      step.link.transform.op().apply(value, output, draws_of(key, step.link.stream));
      return;
    } else {
      step.link.transform.op().apply(value, dense, draws_of(key, step.link.stream));
    }
    value = dense;
  }
  copy_elements(value, output);
}

void Chain::run_image_pass(const Step& step, const TensorView& input, const TensorView& output, const SampleKey& key,
                           Workspace& workspace) {
  const ImagePass& pass = *step.pass;
  const auto* pixels = static_cast<const uint8_t*>(input.data);
  ImageWindow window{.height = pass.cut.height, .width = pass.cut.width};
  if (pass.crop != nullptr) {
    const auto corner = pass.crop->draw(input.shape, draws_of(key, pass.crop_stream));
    window.top = corner.top;
    window.left = corner.left;
  }
  if (pass.flip != nullptr) window.flip = pass.flip->draw(draws_of(key, pass.flip_stream));
  if (pass.crop != nullptr || window.flip) {
    cut_window(pixels, input.shape[0], input.shape[1], 3, window, workspace.window.data());
    pixels = workspace.window.data();
  }
  if (pass.resize != nullptr) {
    resize_rows(pass, pixels, output, workspace);
  } else {
    finish_rows(pass, pixels, output, workspace);
  }
}

void Chain::finish_rows(const ImagePass& pass, const uint8_t* pixels, const TensorView& output, Workspace& workspace) {
  const Target target = target_of(output, pass.hwc2chw != nullptr);
  const int64_t width = pass.size.width;
  for (int64_t y = 0; y < pass.size.height; ++y, pixels += 3 * width) {
    float* out = target.data + y * target.row;
    if (!target.planar()) {
      finish_u8(pixels, 3 * width, {pass.scale, pass.shift, pass.mean.data(), pass.inverse_std.data()}, out);
      continue;
    }
    float* planes = workspace.wide_row.data();
    to_float(pixels, 3 * width, workspace.row.data());
    deinterleave3(workspace.row.data(), width, planes, planes + width, planes + 2 * width);
    for (int64_t c = 0; c < 3; ++c) {
      finish_f32(
          planes + c * width, width,
          {pass.scale, pass.shift, pass.planar_mean.data() + c * width, pass.planar_inverse_std.data() + c * width},
          out + c * target.channel);
    }
  }
}

void Chain::resize_rows(const ImagePass& pass, const uint8_t* pixels, const TensorView& output, Workspace& workspace) {
  const Target target = target_of(output, pass.hwc2chw != nullptr);
  const int64_t width = pass.size.width;
  // First every row that is needed, widened; planes one after the other where the output is planar.
  for (int64_t y = 0; y < pass.cut.height; ++y) {
    if (pass.row_used[static_cast<size_t>(y)] == 0) continue;
    to_float(pixels + y * 3 * pass.cut.width, 3 * pass.cut.width, workspace.row.data());
    float* wide = workspace.wide.data() + y * 3 * width;
    if (target.planar()) {
      resample_row3(workspace.row.data(), pass.columns.data(), width, workspace.wide_row.data());
      deinterleave3(workspace.wide_row.data(), width, wide, wide + width, wide + 2 * width);
    } else {
      // Writes one element past the row, which is the next row's first and is written again.
      resample_row3(workspace.row.data(), pass.columns.data(), width, wide);
    }
  }
  for (int64_t y = 0; y < pass.size.height; ++y) {
    const Tap& tap = pass.rows[static_cast<size_t>(y)];
    const float* a = workspace.wide.data() + tap.first * 3 * width;
    const float* b = workspace.wide.data() + tap.second * 3 * width;
    float* out = target.data + y * target.row;
    if (!target.planar()) {
      blend_finish(a, b, tap.weight, 3 * width, {pass.scale, pass.shift, pass.mean.data(), pass.inverse_std.data()},
                   out);
      continue;
    }
    for (int64_t c = 0; c < 3; ++c) {
      blend_finish(
          a + c * width, b + c * width, tap.weight, width,
          {pass.scale, pass.shift, pass.planar_mean.data() + c * width, pass.planar_inverse_std.data() + c * width},
          out + c * target.channel);
    }
  }
}

}  // namespace tessera::data
