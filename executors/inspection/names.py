"""Architectures that Keras knows by name."""

#: The functions of `keras.applications`.
APPLICATIONS = (
    *(f"ConvNeXt{size}" for size in ("Tiny", "Small", "Base", "Large", "XLarge")),
    *(f"DenseNet{depth}" for depth in (121, 169, 201)),
    *(f"EfficientNetB{size}" for size in range(8)),
    *(f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L")),
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "NASNetMobile",
    *(f"ResNet{depth}{version}" for depth in (50, 101, 152) for version in ("", "V2")),
    "VGG16",
    "VGG19",
    "Xception",
)
