"""Tell clients of DeepL which languages there are, and how much they have used."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from dragoman.server.deepl.dialect import DEEPL, DEEPL_V3
from dragoman.server.languages import name_of
from dragoman.server.reading import Refusal
from dragoman.server.routes import Call, Route

# Their clients refuse these languages as targets without a region.
REGIONS = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}
UNLIMITED = 10**12  # characters: what a server without a quota says


class LanguagesRequest(Struct):
    """Which languages are asked for."""

    type: Literal["source", "target"] = "source"


class Language(Struct, omit_defaults=True):
    """A language that can be translated from or into."""

    language: str
    name: str
    supports_formality: bool | UnsetType = UNSET


class Usage(Struct):
    """How many characters were translated for whoever asks since the server was started."""

    character_count: int
    character_limit: int


def languages(call: Call) -> list[Language]:
    """List the languages that can be translated from, or into."""
    models = call.service.models
    if call.request.type == "source":
        sources: dict[str, str] = {}
        for code in models.sources:  # several may be varieties of one language
            sources.setdefault(code.partition("-")[0].upper(), name_of(code))
        return [Language(code, name) for code, name in sources.items()]
    return [
        Language(code, name_of(region_case(code)), False)
        for target in models.all_targets
        for code in REGIONS.get(target, (target.upper(),))
    ]


def region_case(code: str) -> str:
    """Return a code of theirs, such as 'EN-GB', as others write it: 'en-GB'."""
    language, _, region = code.partition("-")
    return f"{language.lower()}-{region.title() if len(region) == 4 else region}" if region else language.lower()


def usage(call: Call) -> Usage:
    """Say how many characters were translated for this key, or this address, since the start; there is no limit."""
    return Usage(call.service.usage.count(call.caller), UNLIMITED)


class ResourceRequest(Struct):
    """For what languages are asked for."""

    resource: str


class Feature(Struct):
    """Whether a feature is stable."""

    status: str = "stable"


class ResourceLanguage(Struct):
    """A language, and what can be done with it."""

    lang: str
    name: str
    usable_as_source: bool
    usable_as_target: bool
    features: dict[str, Feature]
    status: str = "stable"


class ResourceFeature(Struct, omit_defaults=True):
    """A feature, and which of the two languages must have it."""

    name: str
    needs_source_support: bool = False
    needs_target_support: bool = False


class Resource(Struct):
    """What languages can be asked for, and the features that they may have for it."""

    name: str
    features: list[ResourceFeature]


GLOSSARY, TAGS = (ResourceFeature(name, True, True) for name in ("glossary", "tag_handling"))
RESOURCES = {"translate_text": [GLOSSARY, TAGS], "translate_document": [GLOSSARY], "glossary": []}


def resources(call: Call) -> list[Resource]:
    """List the resources (text, documents, glossaries) that have languages."""
    return [Resource(name, features) for name, features in RESOURCES.items()]


def resource_languages(call: Call) -> list[ResourceLanguage]:
    """List the languages of a resource, with what can be done with each; regions of a language are targets only."""
    if (supported := RESOURCES.get(call.request.resource)) is None:
        raise Refusal(400, f"Value for 'resource' not supported: choose from {', '.join(RESOURCES)}.")
    models, features = call.service.models, {feature.name: Feature() for feature in supported}
    whole = [
        ResourceLanguage(code, name_of(code), code in models.sources, code in models.all_targets, features)
        for code in models.languages
    ]
    regional = [
        ResourceLanguage(region_case(code), name_of(region_case(code)), False, True, features)
        for target in models.all_targets
        for code in REGIONS.get(target, ())
    ]
    return sorted({entry.lang: entry for entry in [*regional, *whole]}.values(), key=lambda entry: entry.lang)


ROUTES = (
    Route("GET", "/v3/languages/resources", resources, DEEPL_V3, answer=list[Resource]),
    Route("GET", "/v3/languages", resource_languages, DEEPL_V3, ResourceRequest, list[ResourceLanguage]),
    Route("GET", "/v2/languages", languages, DEEPL, LanguagesRequest, list[Language]),
    Route("POST", "/v2/languages", languages, DEEPL, LanguagesRequest, list[Language]),
    Route("GET", "/v2/usage", usage, DEEPL, answer=Usage),
)
