// Each image transform alone, on a photograph and on noise of an odd size.
#include "tessera/base/random.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/data/image_transforms.h"
#include "tests/parity/cases.h"

namespace tessera::parity {
namespace {

using nlohmann::json;

Tensor noise(const Shape& shape) {
  Tensor image(DType::kU8, shape);
  const auto values = image.values<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint8_t>(random_below({.seed = 11, .stream = hash_name("noise")}, i, 256));
  }
  return image;
}

void write(CaseFolder& folder, const std::string& name, double limit, const json& facts, const Tensor& image,
           const Tensor& result) {
  folder.add({.name = fmt::format("{} of {}", name, image.type()),
              .kind = "transform",
              .limit = limit,
              .facts = facts,
              .tensors = {{"image", image}, {"result", result}}});
}

void write_resize(CaseFolder& folder, const Tensor& image, const data::Transform& resize) {
  const Tensor result = resize(image);
  // compare.py does not round: u8 is half a grey level away by itself.
  write(folder, resize.to_string(), image.dtype() == DType::kU8 ? 0.501 : 1e-4,
        {{"transform", "resize"}, {"height", result.shape()[0]}, {"width", result.shape()[1]}}, image, result);
}

// At the places that `num_draws` samples draw.
void write_crops(CaseFolder& folder, const Tensor& image, int64_t padding, data::ImageSize size, int num_draws) {
  const data::RandomCrop op(size, {.left = padding, .top = padding, .right = padding, .bottom = padding});
  const auto crop = data::random_crop(size, op.padding);
  for (int i = 0; i < num_draws; ++i) {
    const data::Draws draws{.stream = {.seed = 11}, .position = static_cast<uint64_t>(i)};
    const auto corner = op.draw(image.shape(), draws);
    write(folder, fmt::format("{} at {} {}", crop.to_string(), corner.top, corner.left), 0,
          {{"transform", "crop"},
           {"top", corner.top + padding},
           {"left", corner.left + padding},
           {"height", size.height},
           {"width", size.width},
           {"padding", padding}},
          image, crop(image, draws));
  }
}

}  // namespace

void write_transforms(CaseFolder& folder, const data::Dataset& images) {
  const Tensor photograph = (*images.batches().next())[0];
  for (const Tensor& image : {photograph, noise({37, 53, 3})}) {
    const Tensor floats = image.cast(DType::kF32);
    for (const Tensor& source : {image, floats}) {
      for (const auto size :
           {data::ImageSize(224), data::ImageSize(64), data::ImageSize(48, 80), data::ImageSize(19, 11),
            data::ImageSize(1, 7), data::ImageSize(source.shape()[0], source.shape()[1])}) {
        write_resize(folder, source, data::resize(size));
      }
      write_resize(folder, source, data::resize_shorter_side(45));
      write(folder, "rescale", 1e-6, {{"transform", "rescale"}, {"scale", 1 / 255.0}, {"shift", -0.5}}, source,
            data::rescale(1 / 255.0, -0.5)(source));
      const std::vector<double> mean{125.3, 122.9, 113.8};
      const std::vector<double> std{62.9, 62.0, 66.7};
      write(folder, "normalize", 2e-6, {{"transform", "normalize"}, {"mean", mean}, {"std", std}}, source,
            data::normalize(mean, std)(source));
      write(folder, "hwc2chw", 0, {{"transform", "hwc2chw"}}, source, data::hwc2chw()(source));
      write(folder, "flip", 0, {{"transform", "flip"}}, source, data::random_horizontal_flip(1)(source));
      write_crops(folder, source, 4, {source.shape()[0], source.shape()[1]}, 4);
      write_crops(folder, source, 0, {17, 23}, 2);
    }
  }
}

}  // namespace tessera::parity
