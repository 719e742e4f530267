# %% en
# # What a head does
#
# You train a Transformer to write letters backwards, find out where each of its heads looks, and then switch the
# heads off, one after another. Where a head looks and how much it is needed turn out to be two different questions.
#
# It takes about a minute of training. Before you start: `pip install -e '.[plot]' jupyterlab` in the folder of this
# repository. In Korean: [헤드는 무슨 일을 할까](what-a-head-does.ko.ipynb).
# %% ko
# # 헤드는 무슨 일을 할까
#
# 글자를 거꾸로 쓰는 트랜스포머를 학습시키고, 헤드마다 어디를 보는지 알아본 다음, 헤드를 하나씩 꺼 봐요. 헤드가 어디를
# 보는지와 그 헤드가 얼마나 필요한지는 서로 다른 문제라는 것을 알게 될 거예요.
#
# 학습에는 1분쯤 걸려요. 시작하기 전에 이 저장소의 폴더에서 `pip install -e '.[plot]' jupyterlab`을 실행하세요.
# 영어판: [What a head does](what-a-head-does.ipynb)
# %%
import copy
import random
import string
from pathlib import Path

from dragoman import (
    AttentionConfig,
    FeedForwardConfig,
    RunConfig,
    TrainingConfig,
    TransformerConfig,
    Translator,
    evaluate,
    inspect,
    train,
    view_figure,
)

# %% en
# ## The task
#
# The source is three to nine letters, the target the same letters from the last to the first. We can say exactly
# where a head should look to solve it: for the first letter at the last, for the second at the last but one, and so
# on.
# %% ko
# ## 과제
#
# 원문은 글자 세 개에서 아홉 개이고, 목표 문장은 같은 글자를 뒤에서부터 쓴 거예요. 이 과제를 풀려면 헤드가 어디를 봐야
# 하는지 정확히 말할 수 있어요. 첫 글자를 쓸 때는 마지막 글자를, 둘째 글자를 쓸 때는 끝에서 둘째 글자를 보면 돼요.
# %%
draw = random.Random(1)


def pair():
    letters = draw.choices(string.ascii_lowercase, k=draw.randint(3, 9))
    return " ".join(letters), " ".join(reversed(letters))


pairs = list(dict.fromkeys(pair() for _ in range(6000)))
test, dev, rest = pairs[:100], pairs[100:200], pairs[200:]
Path("backwards").mkdir(exist_ok=True)
for name, part in (("train", rest), ("dev", dev)):
    Path(f"backwards/{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")
test[0]
# %% en
# ## Training
#
# One layer on each side, four heads in each attention. The positions are rotary, as in most models of today: queries
# and keys are turned by their position, which makes *looking at the letter so many places before the end* easy to
# learn.
# %% ko
# ## 학습
#
# 인코더와 디코더가 각각 한 층이고, 어텐션마다 헤드가 네 개예요. 위치는 요즘 모델들이 흔히 쓰는 회전 방식(rotary)으로
# 나타내요. 쿼리와 키를 위치에 따라 회전시키는 방식이라서, 몇 글자 떨어진 곳을 보는 법을 쉽게 배울 수 있어요.
# %%
heads = 4
config = RunConfig(
    train=("backwards/train.tsv",),
    dev=("backwards/dev.tsv",),
    out="runs/backwards",
    model=TransformerConfig(
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        attention=AttentionConfig(heads=heads),
        feed_forward=FeedForwardConfig(d_ff=256),
        positions="rotary-across",
        norm_first=True,
        dropout=0.0,
    ),
    training=TrainingConfig(
        max_steps=500,
        batch_tokens=1024,
        learning_rate=0.4,
        warmup=200,
        label_smoothing=0.0,
        validate_every=100,
        samples=0,
        device="cpu",
        threads=1,
    ),
)
progress = train(config)
# %%
translator = Translator.load("runs/backwards", threads=1)
sources, references = zip(*test, strict=True)


def exact(translator):
    return evaluate([translation.text for translation in translator.translate(sources)], references).exact


complete = exact(translator)
print(f"{complete:.0%} of the test exactly right")
assert complete > 0.9
# %% en
# ## Where each head looks
#
# Four heads of the decoder look at the source. A head that has found the trick shows a diagonal from top right to
# bottom left.
# %% ko
# ## 헤드마다 보는 곳
#
# 디코더에는 원문을 보는 헤드가 네 개 있어요. 요령을 알아낸 헤드는 오른쪽 위에서 왼쪽 아래로 내려가는 대각선을 그려요.
# %%
word = "d r a g o m a n"
inspection = inspect(translator, word, " ".join(reversed(word.split())))
view_figure(translator, inspection, "grid")
# %% en
# As a number: which share of its weight does a head give to the very letter that is to be written?
# %% ko
# 숫자로는 이렇게 나타낼 수 있어요. 헤드는 가중치 가운데 얼마를 지금 써야 할 바로 그 글자에 줄까요?
# %%
length = len(word.split())


def share(head):
    weights = inspection.map("cross", layer=1, head=head).weights
    return sum(float(weights[row, length - 1 - row]) for row in range(length)) / length


shares = {head: share(head) for head in range(1, heads + 1)}
best = max(shares, key=shares.get)
for head, value in shares.items():
    print(f"head {head}: {value:.2f}")
assert shares[best] > 0.6
# %% en
# The head that looks best, in detail:
# %% ko
# 맞는 글자를 가장 잘 보는 헤드를 자세히 보면 이래요.
# %%
inspection.map("cross", layer=1, head=best)


# %% en
# ## Switching off a head
#
# An attention layer keeps the function that compares and mixes as `kernel`. We put another one in its place, which
# does the same and then sets the output of one head to zero. It is a copy of the model that is changed, so the model
# itself stays as it is.
# %% ko
# ## 헤드 끄기
#
# 어텐션 층에서 비교하고 섞는 함수는 `kernel`이에요. 그 자리에 똑같은 일을 한 다음 헤드 하나의 출력을 0으로 바꾸는
# 함수를 넣어요. 바꾸는 것은 모델의 복사본이라서 원래 모델은 그대로예요.
# %%
def without(translator, kind, *off):
    model = copy.deepcopy(translator.model)
    attention = {
        "encoder": model.encoder[0].attention,
        "decoder": model.decoder[0].attention,
        "cross": model.decoder[0].cross_attention,
    }[kind]
    kernel = attention.kernel

    def silenced(query, key, value, mask, dropout):
        output = kernel(query, key, value, mask, dropout).clone()
        for head in off:
            output[:, head - 1] = 0
        return output

    attention.kernel = silenced
    return Translator(model, translator.tokenizers)


assert exact(without(translator, "cross")) == complete
assert exact(without(translator, "cross", *range(1, heads + 1))) < 0.1
# %% en
# Two controls have just passed: with no head switched off, nothing changes; without all four heads that look at the
# source, the model can only guess. Now each of the twelve heads in turn. How much of the test is still right?
# %% ko
# 방금 두 가지를 확인했어요. 아무 헤드도 끄지 않으면 달라지는 것이 없고, 원문을 보는 헤드 네 개를 모두 끄면 모델은
# 찍을 수밖에 없어요. 이제 열두 헤드를 하나씩 꺼 봐요. 시험 문제를 얼마나 맞힐까요?
# %%
left = {
    (kind, head): exact(without(translator, kind, head)) for kind in ("encoder", "decoder", "cross") for head in shares
}
for (kind, head), value in left.items():
    looks = f"   looks at the right letter: {shares[head]:.2f}" if kind == "cross" else ""
    print(f"without {kind:7} head {head}: {value:4.0%}{looks}")
most_needed = min(left, key=left.get)
print("most needed:", *most_needed)
assert min(left.values()) < 0.6
assert max(left.values()) > 0.9
# %% en
# Compare the two columns. Some heads can be taken away at almost no cost, others cannot, and the most needed one need
# not even look at the source. The reasons:
#
# - **Heads stand in for each other.** If several give most of their weight to the right letter, each of them can go,
#   and the others do the work.
# - **The trick has two parts.** To know which letter comes next, the decoder has to know how many it has written. Its
#   self-attention is where it can count, and nobody who looks only at the diagonal sees that.
# - **A head without a diagonal can be needed.** It adds something to every position, and what comes after it has
#   learned to expect that.
#
# So a beautiful map proves nothing. Take the head away, and see.
# %% ko
# 두 열을 견주어 보세요. 거의 아무 손해 없이 뺄 수 있는 헤드도 있고, 없으면 안 되는 헤드도 있어요. 그리고 가장 필요한
# 헤드가 꼭 원문을 보는 헤드인 것도 아니에요. 까닭은 이래요.
#
# - **헤드는 서로를 대신해요.** 여러 헤드가 가중치의 대부분을 맞는 글자에 주고 있으면, 하나를 꺼도 나머지가 일을 해요.
# - **요령은 두 부분으로 되어 있어요.** 다음에 어느 글자를 쓸지 알려면 디코더는 지금까지 몇 글자를 썼는지 알아야 해요.
#   디코더는 셀프 어텐션으로 이것을 셀 수 있는데, 대각선만 보는 사람에게는 보이지 않아요.
# - **대각선이 없는 헤드도 필요할 수 있어요.** 그런 헤드는 모든 위치에 무언가를 더해 주고, 그 뒤에 오는 계산은 그것이
#   있다고 여기도록 배웠어요.
#
# 그러니까 예쁜 그림은 아무것도 증명하지 못해요. 헤드를 빼 보고, 무엇이 달라지는지 봐야 해요.
# %% en
# ## Which heads are enough?
#
# The other way round: keep only one of the four heads that look at the source.
# %% ko
# ## 어떤 헤드면 충분할까
#
# 거꾸로 해 봐요. 원문을 보는 네 헤드 가운데 하나만 남겨요.
# %%
alone = {}
for kept in shares:
    alone[kept] = exact(without(translator, "cross", *(head for head in shares if head != kept)))
    print(f"cross head {kept} alone: {alone[kept]:4.0%}")
assert max(alone.values()) < 0.7
# %% en
# Not one of them is enough by itself, not even one that points at the right letter nearly always. Each head gives the
# decoder a part of what it reads, and the decoder has learned to read the sum.
# %% ko
# 맞는 글자를 거의 언제나 가리키는 헤드라도 혼자서는 충분하지 않아요. 헤드는 저마다 디코더가 읽을 내용의 일부만 주고,
# 디코더는 그것을 모두 더한 값을 읽도록 배웠어요.
# %% en
# ## A word of your own
#
# What does the model write without its most needed head? Put in a word of your own, with spaces between the letters.
# %% ko
# ## 내 단어로 해 보기
#
# 가장 필요한 헤드가 없으면 모델은 무엇을 쓸까요? 영어 알파벳으로 된 단어를, 글자 사이를 띄어서 넣어 보세요.
# %%
mine = "s e o u l"
kind, head = most_needed
print("complete:", translator.translate(mine))
print(f"without {kind} head {head}:", without(translator, kind, head).translate(mine))
inspect(translator, mine)
# %% en
# ## Try it yourself
#
# - Switch off two heads that stand in for each other. Is the loss more than the sum of the two?
# - Train with `heads = 1`. Does the model still learn the task, and how clear is its diagonal?
# - Write the letters in the same order instead (`letters` for `reversed(letters)`). Which heads are needed now?
# - Translate all of `sources` without a head that has no diagonal. What goes wrong, the letters or the length?
# - Give it a word of twelve letters. It has never seen more than nine.
#
# The same with other tasks, and with a film of how the diagonal appears: `dragoman demo --task reverse`.
# %% ko
# ## 직접 해 보기
#
# - 서로를 대신하는 두 헤드를 함께 꺼 보세요. 손해가 따로 껐을 때의 합보다 큰가요?
# - `heads = 1`로 학습해 보세요. 그래도 과제를 배우나요? 대각선은 얼마나 뚜렷한가요?
# - 글자를 같은 순서로 쓰게 해 보세요(`reversed(letters)` 대신 `letters`). 이제는 어느 헤드가 필요한가요?
# - 대각선이 없는 헤드를 끄고 `sources`를 모두 번역해 보세요. 틀리는 것은 글자인가요, 길이인가요?
# - 글자가 열두 개인 단어를 넣어 보세요. 모델은 아홉 글자까지만 본 적이 있어요.
#
# 다른 과제로도 해 볼 수 있고, 대각선이 나타나는 과정을 영상처럼 볼 수도 있어요: `dragoman demo --task reverse`.
