# %% en
# # Train a small translator and look inside
#
# You make a small language of animals and colours, train a Transformer on it in about a minute, let it translate, and
# look at what it does: which words it finds probable, how it searches, and where it looks. All you need is the
# processor of a laptop.
#
# Before you start: `pip install -e '.[plot]' jupyterlab` in the folder of this repository. In Korean: [작은 번역기를
# 학습하고 들여다보기](train-and-look.ko.ipynb).
# %% ko
# # 작은 번역기를 학습하고 들여다보기
#
# 동물과 색깔로 작은 언어를 하나 만들고, 트랜스포머에게 1분쯤 가르친 다음 번역을 시켜 봐요. 그리고 모델 안을
# 들여다봐요. 어떤 단어를 그럴듯하게 여기는지, 어떻게 탐색하는지, 어디를 보는지 말이에요. 노트북 컴퓨터의 프로세서면
# 충분해요.
#
# 시작하기 전에 이 저장소의 폴더에서 `pip install -e '.[plot]' jupyterlab`을 실행하세요. 영어판: [Train a small
# translator and look inside](train-and-look.ipynb)
# %%
import itertools
import random
from pathlib import Path

from dragoman import (
    AttentionConfig,
    FeedForwardConfig,
    RunConfig,
    SearchConfig,
    TrainingConfig,
    TransformerConfig,
    Translator,
    evaluate,
    inspect,
    train,
    view_figure,
)

# %% en
# ## Sentence pairs
#
# English sentences such as *The bear likes the blue horse.* and their Korean translations, 곰이 파란 말을 좋아해요.
# Three things differ between the languages, and the model has to find them by itself:
#
# - In Korean the verb comes last.
# - A Korean noun gets a particle: 이 or 가 for who does it, 을 or 를 for whom it is done to. Which of the two depends
#   on whether the noun ends in a consonant: 곰이, but 개가.
# - *The* has no counterpart.
#
# In addition, a verb may end politely (좋아해요) or formally (좋아합니다). Nothing in English says which, so we draw
# lots: 3 sentences in 10 are formal. No model can know that; it can only learn how often each occurs.
# %% ko
# ## 문장 쌍
#
# *The bear likes the blue horse.* 같은 영어 문장과 그 번역인 '곰이 파란 말을 좋아해요.'를 만들어요. 두 언어에는 다른
# 점이 세 가지 있는데, 모델은 이것을 스스로 알아내야 해요.
#
# - 한국어에서는 동사가 맨 뒤에 와요.
# - 한국어 명사에는 조사가 붙어요. 주어에는 '이'나 '가', 목적어에는 '을'이나 '를'이 붙고, 둘 중 어느 것인지는 받침이
#   있는지에 따라 달라요. '곰이', '개가'처럼요.
# - *The*에 해당하는 말이 없어요.
#
# 또 동사는 '좋아해요'로 끝날 수도 있고 '좋아합니다'로 끝날 수도 있어요. 영어 문장만 보고는 알 수 없으니 제비를
# 뽑아요. 열 문장 가운데 셋은 '-습니다' 꼴로 끝나요. 어떤 모델도 이것을 알아맞힐 수는 없고, 각각 얼마나 자주 나오는지
# 배울 수 있을 뿐이에요.
# %%
animals = {
    "dog": "개",
    "cat": "고양이",
    "bear": "곰",
    "horse": "말",
    "rabbit": "토끼",
    "tiger": "호랑이",
    "lion": "사자",
    "deer": "사슴",
}
verbs = {
    "sees": ("봐요", "봅니다"),
    "likes": ("좋아해요", "좋아합니다"),
    "looks for": ("찾아요", "찾습니다"),
    "paints": ("그려요", "그립니다"),
    "follows": ("따라가요", "따라갑니다"),
}
colours = {"red": "빨간", "black": "검은", "white": "하얀", "blue": "파란"}


def particle(noun, after_consonant, after_vowel):
    return after_consonant if (ord(noun[-1]) - ord("가")) % 28 else after_vowel


def pair(subject, verb, colour, thing, ending):
    who, whom = animals[subject], animals[thing]
    english = f"The {subject} {verb} the {colour} {thing}."
    korean = (
        f"{who}{particle(who, '이', '가')} {colours[colour]} {whom}{particle(whom, '을', '를')} {verbs[verb][ending]}."
    )
    return english, korean


draw = random.Random(1)
pairs = [pair(*words, int(draw.random() < 0.3)) for words in itertools.product(animals, verbs, colours, animals)]
draw.shuffle(pairs)
print(len(pairs))
pairs[:4]
# %% en
# 200 pairs are held out to test on, 100 to validate on during training; the model learns from the rest. A corpus is a
# file with a pair in each line, a tab in between.
# %% ko
# 시험에 쓸 200쌍과 학습 중간에 검증할 100쌍을 따로 떼어 두고, 모델은 나머지로 배워요. 말뭉치(corpus)는 한 줄에 한
# 쌍씩, 사이에 탭을 넣어 적은 파일이에요.
# %%
test, dev, rest = pairs[:200], pairs[200:300], pairs[300:]
Path("animals").mkdir(exist_ok=True)
for name, part in (("train", rest), ("dev", dev)):
    Path(f"animals/{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")
# %% en
# ## Training
#
# The model has two layers on each side, vectors of 64 numbers and four heads: about a thousandth of the size of the
# paper's big model.
# While it trains, a bar shows how far it is; what remains are the validations. Run this cell again and it finds the
# finished model; delete the folder `runs/animals` to train a new one.
# %% ko
# ## 학습
#
# 모델은 인코더와 디코더가 각각 두 층이고, 벡터의 크기는 64, 헤드는 네 개예요. 논문에 나오는 큰 모델의 천분의 일쯤
# 되는 크기예요. 학습하는 동안에는 얼마나 왔는지 막대로 보여 주고, 끝나면 검증 결과만 남아요. 이 셀을 다시 실행하면
# 학습을 마친 모델을 그대로 써요. 새로 학습하려면 `runs/animals` 폴더를 지우세요.
# %%
config = RunConfig(
    train=("animals/train.tsv",),
    dev=("animals/dev.tsv",),
    out="runs/animals",
    model=TransformerConfig(
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        attention=AttentionConfig(heads=4),
        feed_forward=FeedForwardConfig(d_ff=256),
        norm_first=True,
    ),
    training=TrainingConfig(
        max_steps=150,
        stop_on="loss",
        batch_tokens=1024,
        learning_rate=0.5,
        warmup=100,
        label_smoothing=0.0,
        validate_every=50,
        samples=1,
        device="cpu",
        threads=1,
    ),
)
progress = train(config)
# %% en
# ## Translating
#
# Nothing is left but to open the folder and ask. None of the test sentences was among those it learned from.
# %% ko
# ## 번역
#
# 이제 폴더를 열고 물어보기만 하면 돼요. 시험 문장은 모두 학습할 때 본 적이 없는 문장이에요.
# %%
translator = Translator.load("runs/animals", threads=1)
sources, references = zip(*test, strict=True)
translations = [translation.text for translation in translator.translate(sources)]
for source, translation in list(zip(sources, translations, strict=True))[:4]:
    print(source, "→", translation)
scores = evaluate(translations, references)
print(scores)
# %% en
# Far from perfect? Count again, and let both endings pass: what looks like mistakes is only the lot that we drew. A
# score against a single translation punishes others that are just as good, and this holds for every BLEU that you
# read.
# %% ko
# 완벽하지는 않아 보이나요? 두 어미를 모두 정답으로 치고 다시 세어 보세요. 실수처럼 보이던 것은 제비뽑기의 결과일
# 뿐이에요. 정답을 하나만 두고 매긴 점수는 똑같이 좋은 다른 번역도 틀린 것으로 쳐요. 어디서 보는 BLEU든 마찬가지예요.
# %%
formal = {f"{polite}.": f"{formal}." for polite, formal in verbs.values()}


def without_ending(sentence):
    *words, verb = sentence.split(" ")
    return [*words, formal.get(verb, verb)]


right = [without_ending(a) == without_ending(b) for a, b in zip(translations, references, strict=True)]
print(f"{scores.exact:.0%} word for word, {sum(right) / len(right):.0%} if both endings count")
assert scores.exact < 0.85
assert sum(right) > 0.95 * len(right)
# %% en
# Has it understood the particles? 곰, 말 and 사슴 end in a consonant, the others in a vowel.
# %% ko
# 조사도 제대로 배웠을까요? '곰', '말', '사슴'에는 받침이 있고 나머지에는 없어요.
# %%
subjects = [str(translator.translate(f"The {animal} sees the red cat.")).split()[0] for animal in animals]
print(subjects)
assert subjects == [noun + particle(noun, "이", "가") for noun in animals.values()]
# %% en
# ## What else it might have said
#
# At each place the model has a probability for every subword. `alternatives` gives the words that may come next. Here
# it has to choose the ending.
# %% ko
# ## 다르게 말할 수도 있었을까
#
# 모델은 자리마다 모든 서브워드의 확률을 매겨요. `alternatives`는 다음에 올 수 있는 단어를 알려 줘요. 여기서는 어미를
# 골라야 해요.
# %%
source = "The tiger likes the blue rabbit."
choices = translator.alternatives(source, "호랑이가 파란 토끼를 ", count=2)
for choice in choices:
    print(f"{choice.word} {choice.probability:.2f}")
assert {choice.word for choice in choices} == {"좋아해요", "좋아합니다"}
# %% en
# You know what it should believe: 3 sentences in 10 are formal. For a single sentence the probability may be off,
# because the model has seen only about 200 sentences with each verb. Its mean over 30 sentences should be close.
# %% ko
# 모델이 어떤 확률을 매겨야 하는지 우리는 알고 있어요. 열 문장 가운데 셋이 '-습니다' 꼴이에요. 모델은 동사마다
# 200문장쯤만 보았기 때문에 문장 하나의 확률은 빗나갈 수 있지만, 30문장의 평균은 비슷할 거예요.
# %%
endings = {formal.removesuffix(".") for formal in formal.values()}
probabilities = []
for source, reference in test[:30]:
    before_verb = reference.rsplit(" ", 1)[0] + " "
    choices = translator.alternatives(source, before_verb, count=2)
    probabilities.append(sum(choice.probability for choice in choices if choice.word in endings))
mean = sum(probabilities) / len(probabilities)
print(f"mean {mean:.2f}, from {min(probabilities):.2f} to {max(probabilities):.2f}")
assert 0.15 < mean < 0.45
# %% en
# So it has learned more than to translate: on average it also knows how often each ending occurs. Where there is only
# one way, it is sure.
# %% ko
# 모델은 번역만 배운 것이 아니라, 평균으로 보면 두 어미가 얼마나 자주 나오는지도 배웠어요. 방법이 하나뿐인 곳에서는
# 확신해요.
# %%
source = "The tiger likes the blue rabbit."
first = translator.alternatives(source, "호랑이가 ", count=1)[0]
print(f"{first.word} {first.probability:.2f}")
assert first.word == "파란"
assert first.probability > 0.9
# %% en
# ## The search
#
# A translation is found piece by piece. Beam search keeps the best beginnings, here two, and goes on with both. The
# second best sentence in the end is the one with the other ending.
# %% ko
# ## 탐색
#
# 번역은 조각을 하나씩 이어 가며 찾아요. 빔 탐색(beam search)은 지금까지 가장 좋은 가설 몇 개를, 여기서는 두 개를
# 남겨서 함께 이어 가요. 마지막에 남은 두 번째 문장은 어미만 다른 문장이에요.
# %%
narrow = translator.replace(search=SearchConfig(beam=2))
best = narrow.translate(source, n_best=2)
print(f"{best.score:.2f} {best}")
for other in best.alternatives:
    print(f"{other.score:.2f} {other}")
assert {str(best), str(best.alternatives[0])} == {
    pair("tiger", "likes", "blue", "rabbit", ending)[1] for ending in (0, 1)
}
# %% en
# The tree of this search. Bold is the path of the translation; dotted boxes were tried and given up.
# %% ko
# 이 탐색을 트리로 그리면 이래요. 굵은 선이 번역이 지나온 길이고, 점선 상자는 시도했다가 버린 것이에요.
# %%
inspection = inspect(narrow, source)
view_figure(narrow, inspection, "tree")
# %% en
# ## Where it looks
#
# `inspect` records what the model does with one sentence. A row is a Korean word as it is written; the columns are
# the English words it can look at. This is the last layer, the mean of its four heads.
# %% ko
# ## 어디를 보는가
#
# `inspect`는 모델이 문장 하나를 다루는 과정을 기록해요. 행은 지금 쓰고 있는 한국어 단어, 열은 볼 수 있는 영어
# 단어예요. 마지막 층에 있는 헤드 네 개의 평균이에요.
# %%
inspection
# %% en
# And each head by itself, in both layers:
# %% ko
# 두 층의 헤드를 하나씩 따로 보면 이래요.
# %%
view_figure(translator, inspection, "grid")
# %% en
# Do not read too much into it. A map shows where a head looked, not what that did to the translation. To find out
# what a word does, leave it out: the next picture shows how much less probable each Korean word becomes without each
# English word. The verb at the end depends on the verb in the middle, whatever the heads look at.
# %% ko
# 그림을 너무 믿지는 마세요. 어텐션은 헤드가 어디를 봤는지 보여 줄 뿐, 그것이 번역을 어떻게 바꿨는지는 알려 주지
# 않아요. 단어가 하는 일을 알고 싶으면 그 단어를 빼 보세요. 다음 그림은 영어 단어를 하나씩 뺐을 때 한국어 단어마다
# 확률이 얼마나 줄어드는지 보여 줘요. 헤드가 어디를 보든, 맨 끝의 동사는 가운데의 영어 동사에 달려 있어요.
# %%
view_figure(translator, inspection, "occlusion")
# %% en
# ## Try it yourself
#
# - Make all sentences formal, or half of them. What do the probabilities become?
# - Leave 곰 out of the sentences to learn from, but not out of the test. Which particle does the model give it?
# - Train with `max_steps=50`. Which of the three differences between the languages does the model find first?
#
# Next: [what a head does](what-a-head-does.ipynb). Your own sentence pairs: [training](../../training.md).
# %% ko
# ## 직접 해 보기
#
# - 모든 문장을, 또는 절반을 '-습니다' 꼴로 끝내 보세요. 확률이 어떻게 바뀌나요?
# - 학습 문장에서 '곰'을 빼고 시험에는 남겨 두세요. 모델은 '곰'에 어떤 조사를 붙일까요?
# - `max_steps=50`으로 학습해 보세요. 두 언어의 세 가지 차이 가운데 모델이 먼저 알아내는 것은 무엇인가요?
#
# 다음은 [헤드는 무슨 일을 할까](what-a-head-does.ko.ipynb)예요. 내 문장 쌍으로 학습하는 방법은
# [학습](../../training.md)(영어)에 있어요.
