"""Folders of images, as classification scripts read them; paths whose names are no UTF-8."""
import os
import struct
import zlib

import numpy as np
import pytest
import mindspore as ms
import mindspore.dataset as ds
import tessera
from mindspore import nn
from mindspore.dataset import vision


def png(image):
    """The bytes of a PNG of uint8 [h,w,3]."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture
def images(tmp_path):
    """Two classes of three images each, whose sizes differ: dark ones and bright ones."""
    for label, name in enumerate(("dark", "light")):
        (tmp_path / name).mkdir()
        for i in range(3):
            image = np.full((9 + i, 14 - 2 * i, 3), 200 * label + 10 * i, np.uint8)
            (tmp_path / name / f"{i}.png").write_bytes(png(image))
    (tmp_path / "light" / "notes.txt").write_text("none")
    return tmp_path


def test_rows_are_files_with_the_labels_of_their_folders(images):
    data = ds.ImageFolderDataset(str(images), shuffle=False, extensions=[".png"])
    assert data.get_dataset_size() == 6 and data.get_col_names() == ["image", "label"]
    assert data.get_class_indexing() == {"dark": 0, "light": 1}
    made = data.map([vision.Decode(), vision.Resize((4, 5))], "image").batch(6)
    image, label = next(iter(made.create_tuple_iterator(output_numpy=True)))
    assert image.shape == (6, 4, 5, 3) and image.dtype == np.uint8
    assert label.tolist() == [0, 0, 0, 1, 1, 1] and label.dtype == np.int32
    assert image[:, 0, 0, 0].tolist() == [0, 10, 20, 200, 210, 220]


def test_the_transforms_of_classification_scripts_make_batches(images):
    data = ds.ImageFolderDataset(str(images), extensions=[".png"], class_indexing={"light": 4, "dark": 2}, num_shards=2, shard_id=1)
    train = [vision.RandomCropDecodeResize(6, scale=(0.5, 1.0)), vision.RandomHorizontalFlip(), vision.Normalize([1.0] * 3, [2.0] * 3), vision.HWC2CHW()]
    test = [vision.Decode(), vision.Resize(8), vision.CenterCrop(6), vision.Normalize([1.0] * 3, [2.0] * 3), vision.HWC2CHW()]
    for operations in (train, test):
        image, label = next(iter(data.map(operations, "image").batch(3, drop_remainder=True).create_tuple_iterator(output_numpy=True)))
        assert image.shape == (3, 3, 6, 6) and image.dtype == np.float32 and set(label.tolist()) <= {2, 4}


def test_what_cannot_be_a_batch_is_said(images):
    data = ds.ImageFolderDataset(str(images), decode=True, extensions=[".png"])
    with pytest.raises(ValueError, match="differ in size.*resize or crop to one size"):
        data.batch(2)
    with pytest.raises(ValueError, match="takes images of one size"):
        data.map([vision.HorizontalFlip()], "image")
    with pytest.raises(ValueError, match=r"notes.txt: image \(4 bytes\): is no JPEG, PNG or BMP"):
        list(ds.ImageFolderDataset(str(images), shuffle=False).map([vision.Decode(), vision.Resize((4, 4))], "image").batch(7))
    with pytest.raises(ValueError, match="The folder .*nowhere does not exist"):
        ds.ImageFolderDataset(str(images / "nowhere"))


@pytest.mark.parametrize("decode", [True, False])
def test_columns_are_chosen_and_renamed_before_images_have_one_size(images, decode):
    def data():
        return ds.ImageFolderDataset(str(images), decode=decode, shuffle=False, extensions=[".png"])

    operations = [*([] if decode else [vision.Decode()]), vision.Resize((4, 5))]
    expected = next(iter(data().map(operations, "image").batch(6).create_tuple_iterator(output_numpy=True)))
    for chosen, column, names, places in (
            (data().project("image"), "image", ["image"], [0]), (data().rename("image", "x"), "x", ["x", "label"], [0, 1]),
            (data().rename("image", "x").project(["label", "x"]).take(6), "x", ["label", "x"], [1, 0]),
            (data().project(["label", "image"]).rename("label", "y"), "image", ["y", "image"], [1, 0])):
        assert chosen.get_col_names() == names and chosen.get_dataset_size() == 6
        made = chosen.map(operations, column)
        assert made.get_col_names() == names
        row = next(iter(made.batch(6).create_tuple_iterator(output_numpy=True)))
        assert all(np.array_equal(one, expected[place]) for one, place in zip(row, places)) and len(row) == len(places)
    with pytest.raises(ValueError, match="differ in size.*resize or crop to one size"):
        data().project("image").batch(2)


@pytest.mark.parametrize("make, error", [
    (lambda: vision.Decode(to_pil=1), TypeError), (lambda: vision.Decode(to_pil=True), NotImplementedError), (lambda: vision.RandomResizedCrop(0), ValueError),
    (lambda: vision.RandomResizedCrop(3, (1, 0.5)), ValueError), (lambda: vision.RandomResizedCrop(3, max_attempts=0), ValueError),
    (lambda: vision.RandomResizedCrop("a"), TypeError), (lambda: vision.RandomResizedCrop(3, (-1, 1)), ValueError), (lambda: vision.CenterCrop(0), ValueError),
    (lambda: vision.CenterCrop(2.0), TypeError), (lambda: vision.Decode()(np.zeros((2, 2), np.uint8)), TypeError)])
def test_wrong_arguments_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_a_decoded_image_is_an_array():
    image = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    assert np.array_equal(vision.Decode()(np.frombuffer(png(image), np.uint8)), image)
    assert np.array_equal(vision.Decode()(png(image)), image)
    assert vision.CenterCrop((5, 2))(image)[:, :, 0].tolist() == [[0, 0], *image[:, 1:3, 0].tolist(), [0, 0]]


NAMES = [pytest.param(os.fsdecode(b"caf\xe9"), id="text"), pytest.param(b"caf\xe9", id="bytes")]


@pytest.mark.parametrize("name", NAMES)
def test_paths_need_not_be_utf8(tmp_path, name):
    folder = os.path.join(os.fsencode(tmp_path) if isinstance(name, bytes) else str(tmp_path), name)
    os.makedirs(folder)
    path = tessera.checkpoint.save(os.path.join(folder, b"net" if isinstance(name, bytes) else "net"), {"w": tessera.Tensor(np.float32([1, 2]))})
    assert os.fsencode(path) == os.path.join(os.fsencode(tmp_path), b"caf\xe9", b"net.ckpt") and os.path.exists(path)
    assert tessera.checkpoint.load(path)["w"].numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="not UTF-8"):
        tessera.checkpoint.save(os.path.join(folder, name), {"w": tessera.Tensor(np.float32([1, 2]))})
    with pytest.raises(OSError, match=r"caf\\xe9"):
        tessera.checkpoint.load(path[:-len("net.ckpt")] + "none.ckpt")
    tessera.data.write_synthetic_cifar10(folder, 5, 2)
    assert len(tessera.data.cifar10(folder, "train")) == 5


def test_networks_are_saved_and_loaded_below_such_paths(tmp_path):
    folder = os.path.join(str(tmp_path), os.fsdecode(b"\xff\xfe"))
    os.mkdir(folder)
    net = nn.Dense(2, 3)
    ms.save_checkpoint(net, os.path.join(folder, "net.ckpt"))
    other = nn.Dense(2, 3)
    ms.load_checkpoint(os.path.join(folder, "net.ckpt"), other)
    assert np.array_equal(net.weight.asnumpy(), other.weight.asnumpy())


def test_classes_need_not_be_utf8(images):
    os.rename(images / "light", os.path.join(os.fsencode(images), b"l\xe9ger"))
    data = ds.ImageFolderDataset(str(images), shuffle=False, extensions=[".png"])
    assert data.get_class_indexing() == {"dark": 0, os.fsdecode(b"l\xe9ger"): 1}
    image, _ = next(iter(data.map([vision.Decode(), vision.Resize((2, 2))], "image").batch(6).create_tuple_iterator(output_numpy=True)))
    assert image[3:, 0, 0, 0].tolist() == [200, 210, 220]


def test_images_are_resized_by_the_interpolation_that_is_asked_for():
    Inter = vision.Inter
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    twice = vision.Resize((8, 8), Inter.NEAREST)(image)
    assert twice.dtype == np.uint8 and (twice == image.repeat(2, 0).repeat(2, 1)).all()
    half = vision.Resize((2, 2), Inter.AREA)(image.astype(np.float32))
    np.testing.assert_allclose(half, image.reshape(2, 2, 2, 2, 3).mean((1, 3)))
    for interpolation in (Inter.NEAREST, Inter.BICUBIC, Inter.AREA, Inter.PILCUBIC):
        grey = np.full((5, 7, 3), 99, np.uint8)
        assert (vision.Resize((3, 9), interpolation)(grey) == 99).all(), interpolation
        assert vision.Resize(3, interpolation)(grey).shape == (3, 4, 3)
        assert (vision.Resize((4, 4), interpolation)(image) == image).all(), interpolation
        rows = ds.NumpySlicesDataset({"image": np.stack([image, image + 1])}, shuffle=False).map(vision.Resize((6, 5), interpolation), "image")
        (batch, ) = next(iter(rows.batch(2).create_tuple_iterator(output_numpy=True, num_epochs=1)))
        assert batch.shape == (2, 6, 5, 3) and batch.dtype == np.uint8
        cut = ds.NumpySlicesDataset({"image": np.stack([image, image + 1])}, shuffle=False).map(vision.RandomResizedCrop((3, 2), interpolation=interpolation), "image")
        assert next(iter(cut.batch(2).create_tuple_iterator(output_numpy=True, num_epochs=1)))[0].shape == (2, 3, 2, 3)
    # A step between two levels overshoots: what the bilinear one never does.
    step = np.repeat(np.array([[0.0] * 4 + [1.0] * 4], np.float32), 4, 0)
    assert vision.Resize((4, 16), Inter.BICUBIC)(step).max() > 1.01
    with pytest.raises(TypeError, match="ANTIALIAS is for PIL images"):
        vision.Resize((4, 4), Inter.ANTIALIAS)
    with pytest.raises(RuntimeError, match=r"PILCUBIC is for images \[height, width, 3\]"):
        vision.Resize((4, 4), Inter.PILCUBIC)(np.zeros((8, 8, 1), np.uint8))


def test_images_are_normalized_whichever_dim_their_channels_are():
    image = np.random.default_rng(0).random((3, 8, 3)).astype(np.float32)
    mean, std = [0.1, 0.2, 0.3], [1.0, 2.0, 4.0]
    rows = ds.NumpySlicesDataset({"image": image[None]}, shuffle=False)
    for is_hwc, shape in ((True, (1, 1, 3)), (False, (3, 1, 1))):
        for means, stds in ((mean, std), ([0.5], [0.25])):
            (found, ) = next(iter(rows.map(vision.Normalize(means, stds, is_hwc), "image").create_tuple_iterator(output_numpy=True, num_epochs=1)))
            expected = (image - np.reshape(means, shape if len(means) > 1 else ())) / np.reshape(stds, shape if len(stds) > 1 else ())
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
