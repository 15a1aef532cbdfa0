#!/usr/bin/env python3
"""Train the small story model in examples/models/stories from nothing.

    python3 -m venv venv && venv/bin/pip install torch transformers tokenizers
    venv/bin/python tools/train_stories.py --out examples/models/stories      # the model that ships
    venv/bin/python tools/train_stories.py --show 5                           # five stories; needs Python alone

The corpus is generated, never stored: the first half of this file is a grammar of short children's stories, the
second half trains a byte-level BPE vocabulary and a Llama-style network on what the grammar says. The same seed gives
the same stories; the weights also depend on the version of torch and on the processor's arithmetic.

The model that ships took 55 minutes with about a third of a core of a busy x86-64 server (no more than one core is
used); with --state FILE a run can be stopped and go on.

This file is part of the project and under its licence (MIT-0 or public domain, at your choice).
"""
import argparse
import math
import os
import random
import re
import shutil
import sys
import time

# ----------------------------------------------------------------------------------------------------------------
# The grammar: plots
# ----------------------------------------------------------------------------------------------------------------
#
# A section begins with '== name: remark'; each 'plot' is one kind of trouble and its end. A line is a sentence or two,
# indented lines go on with the line before. '| ' begins another wording of the line before (nothing: it may be left
# out), '(this|that|)' is a choice inside a sentence, an empty line is a new paragraph. Besides,
#
#   a ; b = x ; y / u ; v     a choice made once for the story: {a} is then x and {b} is y, or {a} is u and {b} is v
#   a & b = x / y / z         two different choices from one list
#   cast F                    brings in a friend (F), of the kind {friend} if that is set, or someone older (E)
#   not duck frog             animals that cannot be the heroes of this plot
#   @name                     the sentences of another section
#   30%: x / y                one of these sentences, in 30 stories of 100
#   moral: x / y              sometimes the lesson, told or thought
#
# {H}, {F}, {E} are hero, friend and elder by name, {Ha} the first mention ('a little fox named Pip'), {h} {hi} {hs}
# {hself} the pronouns (she her her herself); {O} is the hero's thing with its colour, {o} without; {the x} is {x} with
# 'the' for its 'a'. {near} is the place the hero lives at. {when} is 'One day,' the first time.

GRAMMAR = """
== open classic
(Once upon a time,|Once upon a time,|Once upon a time|Long ago,|A long time ago,|Once) there was {Ha} who lived
    {home}.
| (Once upon a time,|Once upon a time|Long ago,|Far away,) there lived {Ha}. {h} lived {home}.
| Once upon a time, {Ha} lived {home}.
| There (once|) was {Ha} who lived {home}.
| This is the story of {Ha} who lived {home}.
| {home}, there lived {Ha}.
| {home}, there (once|) was {Ha}.

== open named
{Ha} lived {home}.
| {Ha} lived {home} with {hs} (mother|father|family).
| {H} was a {Hnoun} who lived {home}.
| {H} the {Hkind} lived {home}.

== open nameless
The {Hnoun} lived {home}.
| The {Hnoun} lived {home} with {hs} (mother|father|family).
| A {Hnoun} lived {home}.
| The {Hnoun} was (happy|glad) to live {home}.
| The {Hnoun} had a (small|cosy|quiet) home. {h} lived {home}.

== open day: so that "One day", "In the morning" and "It was" can begin a story
going = went for a walk / was walking / was playing / was sitting
It was a {weather} (day|morning|afternoon) in {season}. {scene} {Hfirst} {going} {bynear}.
| One day, {Hfirst} {going} {bynear}. {scene}
| One {weather} (day|morning), {Hfirst} {going} {bynear}. {scene}
| One day in {season}, {Hfirst} {going} {bynear}.
| In the morning, {Hfirst} woke up (early|) and (looked outside|stretched|jumped out of bed). {scene}
| In the morning, the sun came up (over {near}|), and {Hfirst} (woke up|got out of bed). {scene}
| On a {weather} (morning|day) in {season}, {Hfirst} {going} {bynear}. {scene}
| {Hfirst} {going} {bynear}. It was a {weather} day in {season}.
| Early (one|in the) morning, {Hfirst} {going} {bynear}. {scene}

== nature
hobby = to sing / to dance in the rain / to look at the stars / to tell stories / to climb trees / to paint pictures /
    to collect shiny stones / to sit by the {water} / to pick flowers / to listen to the wind / to play hide and seek /
    to watch the clouds
75%: {h} loved {hobby}. / {h} loved {hobby}, and {h} was never (in a hurry|late|bored|alone). /
    More than anything, {h} loved {hobby}. /
    {h} was (kind to everyone|always hungry|always busy|full of questions|good at many things). /
    Everyone (liked|knew) {hi}, because {h} (was always kind|laughed so much|had a good heart).

== own: a thing worth a story
{H} had a {O}, and {h} took it (everywhere|wherever {h} went).
| (Best of all|Most of all), {h} loved {hs} {O}. It (was|had been) a (gift|present) from {hs}
    (mother|grandmother|father|uncle).
| {H} had a {O} that {hs} (father|grandfather|mother) had made for {hi}.
| For {hs} birthday, {H} got a {O}. It was the (most beautiful|best) {o} in the world.

== sad
{H} (was|felt) (very|so|) (sad|unhappy|worried).
| {H} sat down on a (stone|log) and (sighed|cried).
| A tear ran down {hs} (nose|cheek).
| {H} did not know what to do.
| {H} wanted to cry.

== meet: the friend comes by
(Just then|At that moment|Soon), {Fa} came (by|along|along the path).
| {Fa} heard {hi} and came (closer|to see).
| (Just then|Then) {h} met {Fa}.
| {Fa} was (passing by|sitting nearby) and saw {hi}.
"(What is the matter|What is wrong|Why are you so sad)?" asked {F}.
| "(Hello|Good day){callH}," said {F}. "You look (sad|worried|unhappy)."

== thank
"Thank you, thank you!" (cried|said|called) {H}.
| "(Thank you|Thank you so much){callF}," said {H}. "You are (so kind|a true friend|very clever)."
| {H} (gave {F} a big hug|hugged {F}|jumped for joy). "Thank you!" {h} said.
| "How can I thank you?" asked {H}. "(Just be my friend|Come and play with me tomorrow)," said {F}.

== friends: the end of a story that began without a friend
From that day on, {H} and {F} were (best|good|the best of) friends.
| After that, {H} and {F} (met|played together) every day.
| {H} and {F} (sat|walked) {bynear} until the sun went down, and (both|they) were happy.
| And so {H} had found a (new|true|good) friend.
| That night, {H} fell asleep with a smile and dreamed of {F}.
@close

== close
30%: The end. / And they lived happily ever after. / What a (good|wonderful|happy) day it was!

== plot lost: a thing is lost, a friend helps to look, it is found in an unlikely place
cast F
place0 & place1 & place2 = under the bed / behind the door / in the garden / under the table / in the tall grass /
    behind the wall / in the kitchen / on the stairs / in the barn
@own
{when} (the {o} was gone|{h} could not find the {o}|the {o} was not in its place).

{H} looked {place0}, but (it was not there|there was only (dust|an old shoe|a sleepy spider)).
{h} looked {place1}, but it was not there (either|).
"(Oh no|Oh dear)! Where is my {o}?" (cried|said) {H}.
|
@sad

@meet
"I have lost my {O}," said {H}. "I have looked everywhere."
| "My {O} is gone," said {H}, "and I cannot find it."
"(Do not worry|Do not be sad|Cheer up)," said {F}. "(I will help you|We will find it together|Let us look together)."
{F} {gift}(|, and (soon|at last) {f} (stopped|called out)).

"Look!" said {F}. "(There is something {colour} {place2}!|What is that {place2}?)"
| They looked (high and low|here and there), and (at last|finally) {F} saw something {colour} {place2}.
It was the {o}! (The wind had blown it there|It had fallen out of {hs} bag|Someone had left it there).
| There lay the {O}, (safe and sound|as good as new|a little dirty but not broken).
@thank
moral: two can look better than one / a friend is worth more than a {O} / it is good to ask for help
@friends

== stuck again: shared by the three plots that follow
{H} wanted (to get it back|it back).
|
{try0}
{try1}
@sad
@meet
"I (cannot reach|cannot get) my {O}," said {H}.

"(That is easy|I can help you|Let me try)," said {F}. "(Wait here|Just wait|Watch me)."
{F} {act} {way}.
The {o} was (not broken|as good as new|a little wet, but {H} did not mind).
|
@thank
moral: everyone is good at something / what is hard for one is easy for another / nobody can do everything alone
@friends

== plot stuck high: out of reach; the hero tries twice; someone with the right gift brings it back
friend ; act = crow ; flew up, took the {o} in {fs} beak / robin ; flew up and pushed until the {o} was free /
    squirrel ; ran up, as quick as the wind, took the {o} / cat ; climbed up (slowly|carefully), took the {o} /
    goat ; stood on {fs} back legs, reached up / monkey ; climbed from branch to branch, took the {o}
way = and brought it down
try0 & try1 = {h} jumped, but {h} was (too small|not tall enough). /
    {h} tried to climb up, but {h} (slipped|fell down). /
    {h} (threw a stick|shook the tree), but the {o} did not (move|come down).
cast F
@own
{when} (a strong wind|the wind) (took|carried) the {o} away, and it (came down|got stuck) (in the top of a (tall|high)
    tree|on the roof of the barn|on a high branch).

@stuck again

== plot stuck deep
friend ; act = mouse ; went down without fear, tied a string to the {o} / mole ; dug a tunnel, found the {o} /
    badger ; dug with {fs} strong paws, took hold of the {o} / rabbit ; dug as fast as {f} could, found the {o} /
    bear ; moved the stones away, reached down / elephant ; reached down with {fs} long nose, took the {o}
way = and brought it up
try0 & try1 = {h} reached down, but {hs} arm was too short. / {h} tried with a stick, but the stick broke. /
    {h} pulled and pulled, but the {o} did not move.
cast F
@own
{when} {H} (let go of|dropped) the {o}, and it (fell|rolled) (into a deep hole|into an old well|between two big rocks).

@stuck again

== plot stuck wet
not otter duck frog goose beaver turtle penguin
friend ; act = otter ; swam out, took the {o} / duck ; swam out, took the {o} in {fs} beak /
    frog ; jumped from leaf to leaf, reached the {o} / turtle ; swam out slowly, took the {o} on {fs} back /
    goose ; swam out, took the {o} in {fs} beak / beaver ; made a small raft, reached the {o} /
    penguin ; jumped in with a splash, reached the {o}
way = and brought it back
try0 & try1 = {h} tried to reach it with a stick, but it was too far away. / {h} could not swim so far. /
    {h} threw a stone, but the {o} only (floated|went) farther away.
cast F
@own
{when} (the wind took the {o} and|{H} was playing with the {o} when) it fell into (the middle of|) the {water}.

@stuck again

== plot bake: something is missing for a meal; a neighbour has it; one good turn for another; they share
cast F
food ; missing ; were ; cook ; place ; part = cake ; flour ; was ; bake a ; the oven ; piece /
    pie ; apples ; were ; bake a ; the oven ; piece / soup ; carrots ; were ; cook some ; the pot ; bowl /
    bread ; flour ; was ; bake some ; the oven ; piece / honey cake ; honey ; was ; bake a ; the oven ; piece /
    jam ; berries ; were ; cook some ; the pot ; jar
need ; done = the roof is broken ; mended the roof / the garden is full of weeds ; pulled out the weeds /
    there is no wood for the fire ; carried wood for the fire / my windows are dirty ; washed the windows
{when} {H} wanted to {cook} {food} for {hs} (mother|grandmother|little sister|father).
{h} put on an apron and opened the cupboard.
| {h} lit the fire and took out a big bowl.
|
But there {were} no {missing} (left|in the house).
"How can I {cook} {food} without {missing}?" (said|asked) {H}.
|

So {h} took a basket and went (down the road|along the path) to the house of {Fa}.
"(Good morning|Hello){callF}," said {H}. "Do you have (some|any) {missing} for me?"
"(Yes, I do|I have plenty)," said {F}, "but {need}, and I cannot do it alone."
"Then I will help you (first|)," said {H}.
| "I will help you," said {H} (at once|with a smile).
{H} (worked hard|worked all morning) and {done}.
{F} was (very pleased|so glad) and filled the basket with {missing}.

{H} (ran|hurried) home and set to work.
| Back at home, {H} set to work.
Soon a (sweet|warm|wonderful) smell came (out of|from) {place}.
The {food} was (the best {h} had ever made|so good that nobody wanted to stop eating).
| {H} took the first {part} to {F}, and they (ate|sat down) together.
moral: good things taste better when you share them / one good turn deserves another
@friends

== plot cross: a visit, a river in the way, somebody who knows how to cross it
not otter duck frog goose beaver turtle penguin dragon
friend ; act = beaver ; pushed a (log|tree) across the water and made a bridge /
    otter ; swam ahead and pulled a little raft behind {fi} / goose ; showed {H} a row of flat stones to walk on /
    turtle ; said, "Climb on my back," and carried {H} across /
    pony ; said, "Climb on my back," and carried {H} across /
    bear ; took {H} on {fs} (strong back|shoulders) and walked through the water /
    elephant ; lifted {H} up and walked through the water
cast F
who ; she ; her = grandmother ; she ; her / aunt ; she ; her / uncle ; he ; him / grandfather ; he ; him
present = a basket of berries / a pot of honey / a warm scarf / a loaf of bread / a bunch of flowers
{when} {H} wanted to visit {hs} {who} on the other side of the river.
| {when} {hs} mother said, "Please take {present} to your {who} on the other side of the river."
{h} (packed|took) {present} and (set off|started) (early|with a song|).
| {h} put on {hs} (hat|boots), took {present} and set off.

But when {h} came to the river, the bridge was (broken|gone).
| But the (rain|storm) had broken the bridge, and the water was (deep|wild) and (fast|cold).
{H} looked (up and down|left and right), but there was no (other way|boat).
| {h} put one foot into the water and (pulled it back|jumped back) at once.
@sad
@meet
"I must get to my {who}," said {H}, "but I cannot cross the river."
| "The bridge is broken," said {H}, "and my {who} is waiting (for me|)."

"(Leave that to me|I know what to do|I can help you)," said {F}.
{F} {act}.
Step by step they (came|got) to the other side.
| Soon {H} stood on the other side, and not even {hs} feet were wet.
"Come with me," said {H}, "my {who} will be glad to meet you."
| "Thank you," said {H}. "Come with me and eat with us."

{hs} {who} was (waiting at the door|standing at the window) and (waved|laughed) when {she} saw them.
{H} gave {her} {the present}, and they all sat (by the fire|around the table) and (ate|told stories|drank tea).
moral: there is a way across every river / a stranger can be a friend
@friends

== plot noise: something strange in the night; two are braver than one; it was nothing to fear
cast F
noise ; truth ; then = a scratching noise ; a branch that was touching the window ; {laugh} /
    a deep humming ; the wind in an old bottle ; {laugh} /
    a strange knocking ; a little mouse who wanted to come in from the cold ; {guest} /
    a soft crying ; a small kitten who had lost its way ; {guest} /
    a strange rustling ; a hedgehog who was looking for (apples|leaves) ; {guest} /
    a loud hooting ; a young owl who could not sleep ; {guest}
laugh = {H} and {F} looked at each other and laughed (until they had to sit down|and laughed). /
    "And I thought it was a (monster|ghost)!" said {H}, and they both laughed.
guest = "(Please do not be angry|I am sorry)," said their guest. "I did not want to wake you." They found a (warm
    place|bed of leaves) by the fire for it, and (soon|at last) it was asleep. /
    It was even more afraid than they were. They took it inside and gave it some warm milk.
One (dark|cold|windy|quiet) night, {H} (woke up|could not sleep) because {h} heard {noise} (outside|at the door|in the
    dark).
"(Who is there|What is that)?" (whispered|asked) {H}. (Nobody answered|There was no answer).
| {hs} heart (beat fast|was beating fast). {h} (pulled the blanket over {hs} head|hid under the blanket).
"It must be a (ghost|monster|giant)," {h} thought.
| The noise came again, (louder|closer) than before.

{H} (ran|crept) (quickly|) to {hs} friend, {Fa} who lived next door.
"(Please come with me|Wake up)," said {H}. "There is {noise}, and I am afraid."
"(I am a little afraid too|So am I)," said {F}, "but together we will be brave."
| "Then we will go and look," said {F}. "(Two are braver than one|I am not afraid when you are with me)."
They took a (lantern|candle) and (went|walked) (slowly|step by step) (through|into) the dark.

The noise grew louder and louder. {H} (held on to|stayed close to) {F} and (lifted|held up) the light.
It was (only|nothing but) {truth}!
{then}
moral: things are not so bad when you look at them in the light / even the brave are sometimes afraid / being brave is
    easier with a friend
Then {H} went back to bed and slept (well|soundly) until the morning.
| From that night on, {H} was not afraid of the dark (anymore|).
@close

== plot new: new in town and shy; someone makes the first step
cast F
game = hide and seek / catch / with a ball / a game with stones / pirates
{h} was new there and did not know anyone.
| {h} had only just moved there, and {h} had no friends yet.
{when} {h} saw the others playing {game} {bynear}.
{H} wanted to (join them|play too), but {h} was too shy to ask.
| {H} stood behind a tree and watched. {h} was too shy to say (hello|a word).

"What if they do not (like|want) me?" {h} thought.
| "They will (laugh at me|say no)," {h} thought.
@sad
Then {Fa} (turned around and saw|looked up and saw) {hi}.
| Then {Fa} came (over|across the grass) to {hi}.
"(Hello|Hello there)! What is your name?" asked {F}.
| "(Hello|Hello there)! Are you new here?" asked {F}.
"{Hanswer}," said {H} (softly|in a small voice|quietly).
"We need one more," said {F}. "Do you want to play {game} with us?"
| "Come and play {game} with us," said {F}. "It is (more fun|better) with one more."

{H} (smiled|nodded), and (soon|before long) {h} was (running and laughing|laughing) with (all the others|them).
| At first {H} was quiet, but (soon|before long) {h} laughed (louder|more) than (anyone|all the others).
They played until the (stars came out|sun went down).
| They played all day, and nobody wanted to go home.
"Will you come (back|again) tomorrow?" asked {F}. "Oh yes!" said {H}.
| "(That was fun|What a day)!" said {F}. "Come again tomorrow."
moral: a friend may be only one hello away / sometimes you only have to ask / one kind word can change a day
@friends

== plot race: the race that is won by stopping
cast F
cast E
prize = golden cup / big cake / silver bell / basket of apples
{when} there was (going to be|) a (big|great) race around {near}. The prize was a {prize}.
{H} wanted to win (more than anything|so much). {h} (ran up and down|practised) every (day|morning).
| "I will win the {prize}," said {H}, and {h} (ran up and down|practised) every (day|morning).
But {Fa} was (faster|the fastest of all) and (laughed|smiled). "You will never (beat|catch) me," said {F}.
| Nobody was as fast as {Fa}. "I always win," said {F}.

When the day came, {E} (called|shouted), "One, two, three, go!"
| Everybody came to watch. "Go!" (called|shouted) {E}.
They ran (over the grass|past the mill) and (through the mud|down the lane). {F} was (soon|) far ahead.
Then {F} (fell over a root|slipped on a stone) and hurt {fs} (foot|leg).
| But {F} looked back, and {f} (fell over a root|stepped into a hole) and hurt {fs} (foot|leg).
(Now|Suddenly) {H} was first! {h} could (already|) see the end of the race.
| {H} came closer and closer. Now {h} could win!

But {h} heard {F} crying, and {h} stopped.
| {h} looked at the (flag|end), and then {h} looked at {F}. {h} stopped.
"(Lean on me|Give me your hand)," said {H}. "We will (finish|walk) together."
| "Does it hurt?" asked {H}. "(Lean on me|Come), we will (finish|go on) together."
(Slowly|Step by step), {H} and {F} (walked|went) on, side by side, and (everyone|everybody) cheered.
"There are two winners today," said {E}, and (they shared the {prize}|{e} gave the {prize} to both of them).
| {E} gave the {prize} to {H}. "(This is for a good heart|A good heart is faster than quick feet)," {e} said.
"I am sorry that I laughed," said {F}.
|
moral: it is better to be kind than to be first / winning is not everything
@friends

== plot share: two friends, one thing, a quarrel, and good advice
cast F
cast E
{hs} best friend was {Fa}.
{when} {H} and {F} found a {O} {bynear}.
"It is mine! I saw it first!" (cried|said) {H}. "No, it is mine!" (cried|said) {F}.
| "I want it," said {H}. "No, I want it," said {F}.
They pulled and pulled, and (neither|nobody) would let go.
| Soon they were (shouting|angry), and neither would let go.
{F} (went|ran) home, and {H} was left alone with the {o}.
| In the end, {F} ran home in tears, and {H} kept the {o}.

{H} played with the {o}, but it was no fun (alone|without {F}).
| But the {o} was no fun without {F}.
@sad
So {h} went to {Ea} and told {ei} (everything|what had happened).
"(Which is worth more|What do you want more), a {o} or a friend?" asked {E}.
| "One {o} can make two (friends|of you) happy," said {E}, "if you take turns."
{H} thought (for a while|about it). Then {h} knew what to do.
| {H} (nodded|smiled). Now {h} knew what to do.

{h} took the {o} and (ran|went) to the house of {hs} friend.
"I am sorry," said {H}. "You can have it (first|today), and I can have it (later|tomorrow)."
| "I am sorry," said {H}. "Let us share the {o}."
"I am sorry too," said {F}, and (they hugged|they both smiled|{f} smiled).
They played with the {O} together until (it was dark|the stars came out).
| After that, they took turns, and (there was no more quarrel|they never quarrelled again).
moral: sharing makes a thing bigger / no {o} is worth more than a friend
@close

== plot seed: a seed, much waiting, and what comes of it
cast E
start ; who = {Ea} gave {hi} a (tiny|small|strange) seed ; {E} / {H} found a (tiny|small|strange) seed {bynear} ; {Ea}
plant ; thing ; size = a sunflower ; flower ; as tall as the house / a pumpkin ; pumpkin ; as big as a wheel /
    an apple tree ; tree ; full of red apples / a rose ; rose ; as red as the evening sky /
    a bean plant ; plant ; as high as the roof
{when} {start}.
"What (will|can) it be?" {h} (asked|thought|wondered).
| It was as small as a (pea|crumb).
{H} (dug a little hole|made a hole in the ground), put the seed in and gave it some water.

The next day, {h} ran out to look. There was nothing but earth.
| {h} waited a day, and another day. Nothing happened.
{h} sang to it, (and {h} danced around it|and {h} told it a story), but still nothing grew.
| {h} (looked|came) every morning, but still nothing grew.
@sad
{h} went to {who} and (asked|said), "Why does my seed not grow?"
"Good things need time," said {E}. "(Give it water and wait|Water it every day and wait)."
| "(It is growing under the ground|It is still asleep)," said {E}. "You only have to wait."

So {H} gave it water every day and waited.
| So {H} watered it, (and the sun shone on it,|) and {h} waited.
(Then, one morning,|And one morning,) there was a tiny green leaf!
| (Then, one morning,|And one morning,) something green looked out of the ground!
It grew and grew, (week after week|day after day), until it was {plant}, {size}.
"It is the most beautiful {thing} in the world," said {H}.
| "Look what I have grown!" (called|cried) {H}, and everyone came to see it.
{E} was very proud of {hi}.
moral: good things need time / the best things are worth waiting for
And every (spring|year), {H} planted a new seed.
| That evening {H} sat beside the {thing} and was (happy|content).
@close

== plot way: too far from home, lost, and brought back
cast F
what = berries / mushrooms / flowers / nuts
{when} {H} (went|walked) into the (deep|dark|big) forest to (pick|look for) {what}.
"Do not go too far," said {hs} mother.
| "Be home before dark," said {hs} (mother|father).
But {h} saw more and more {what}, and {h} went farther and farther (from home|).
| But the best {what} were always a little farther (on|away), and {h} forgot the time.

(When {h} looked up|All at once), (the path was gone|everything looked strange), and it was getting dark.
| Then a (thick|white) fog came, and {h} could not see the path (anymore|).
{h} went left, {h} went right, but every tree looked the same.
| {h} walked and walked, and came back to the same (stone|tree).
"I am lost," (said|whispered) {H}.
| "(Hello|Help)! Is anybody there?" (called|cried) {H}.
@sad
@meet
"I have lost my way," said {H}, "and I want to go home."
| "I cannot find the way home," said {H}.

"Where do you live?" asked {F}. "I live {home}," said {H}.
| "I know (the way|every path in this forest)," said {F}. "(Come with me|Follow me)."
They (walked|went) together through the dark, and {F} (sang|told a story|held a small light) so that {H} was not
    afraid.
| The moon came out, and {F} (went ahead|showed {hi} the way).
At last they saw a light. It was home!
| At last {H} could see {near}, and then the light of {hs} home.
{hs} mother ran out and took {hi} in her arms.
| "There you are!" said {hs} mother, and she hugged {hi} (for a long time|again and again).
{H} gave half of the {what} to {F}.
| {F} stayed for supper.
| They gave {F} (some hot soup|a piece of cake) and a place by the fire.
moral: it is good to stay near the path / a good friend shows you the way
@friends

== plot sick: a friend is ill in bed; what will cheer a friend up?
cast F
joke = {h} told a joke at the window, but {F} only coughed. /
    {h} danced in front of the window, but {F} was fast asleep. / {h} blew up a balloon, but it burst with a bang.
present ; getting = a bunch of flowers ;
    {h} went {tonear} and picked the (most beautiful|brightest) flowers {h} could find. /
    a pot of hot soup ; {h} cooked a big pot of hot soup with (carrots|onions) and herbs. /
    a new song ; {h} sat down (under a tree|on the steps) and made a new song, (line by line|all about {F}). /
    a funny picture ; {h} took {hs} paints and made a funny picture of the two of them. /
    a jar of honey ; {h} asked the bees (very|) politely, and they gave {hi} a jar of honey.
{hs} best friend was {Fa}.
{when} {F} did not come out to play. {f} was ill and had to stay in bed.
| {when} {H} waited for {F}, but {f} did not come. {F} was ill in bed.
{H} wanted to (cheer {fi} up|make {fi} smile), but how?
| "How can I (cheer {fi} up|make {fi} smile)?" thought {H}.

First {joke}
Then {H} had an idea.
| {H} thought and thought. Then {h} had a better idea.
{getting}

In the evening, {H} knocked at the door. "I have {present} for you," {h} said.
{F} (sat up|opened {fs} eyes) and smiled for the first time (that day|in days).
| {F} smiled (from ear to ear|a big smile).
"(That is the best medicine|You are the best friend) in the world," said {F}.
| "Now I feel (better|much better) already," said {F}.
{H} stayed and (told stories|read to {fi}) until {F} fell asleep.
| They (talked|laughed) until it was dark.
(After three days|The next day|A few days later), {F} was well again, and they (ran out to play|played {bynear})
    together.
moral: a friend is the best medicine / a small gift can bring a big smile
@close

== plot storm: a storm takes the roof; an open door; many hands build again
cast F
One night, (a great storm came|there was a great storm) over {near}.
The wind (howled|roared), the rain came down, and the trees (bent|shook).
| There was thunder and lightning, and (the walls shook|the rain did not stop).
(Suddenly|Then) there was a loud crack, and a (branch|tree) fell on {hs} home.
| Water came in (at|through) the door, and soon {hs} bed was wet.
{H} had to (run out|go out) into the (rain|dark).

{h} knocked at the first door. "(Go away|We have no room)!" (called|said) a voice.
{h} (walked on|went on), (cold|wet) and (tired|shivering).
| {H} was (so|) cold and wet, and {h} wanted to cry.
Then {h} saw a small light. It was the home of {Fa}.
"Come in, come in," said {F}. "You are wet (through|all over)!"
| "You poor thing," said {F}. "Come in and sit by the fire."
{F} gave {hi} a (blanket|towel) and a cup of hot (tea|milk).
| {F} gave {hi} dry clothes and a bowl of hot soup.
"It is small here," said {F}, "but there is room for a friend."
| "You can stay as long as you like," said {F}.

In the morning, the storm was over and the sun was shining.
They went to look at the (damage|broken roof). It looked terrible.
"(I will help you|We will build it up again)," said {F}.
| "Do not worry," said {F}. "We (have four hands|can do it together)."
They (worked|carried wood and stones) all day, and (by evening|three days later) (everything was better than
    before|the home was as good as new).
@thank
moral: a small home with an open door is the biggest of all / after every storm the sun comes back
@friends

== plot truth: something breaks; it is hard to tell; telling is right
cast E
thing ; which ; again = cup ; best cup ; {glue} / vase ; blue vase ; {glue} / jug ; old jug ; {glue} /
    plate ; white plate ; {glue} /
    window ; kitchen window ; Together they put in a new window, and soon it was as good as new.
glue = They (glued|put) the pieces together, and soon the {thing} was almost as good as new.
{when} {H} was (playing|dancing|running about) in the house of {Ea}.
{h} turned around too fast, and (crash|bang)! The {which} was broken.
| {h} threw a ball into the air, and (crash|bang)! It hit the {which}.
{H} stood (very|quite) still. Nobody had seen it.
| "Oh no," whispered {H}. "What have I done?"

{h} hid the pieces (under a cloth|behind the door|under the bed) and went outside.
| "I could say that the wind did it," {h} thought.
But {h} could not (eat|play|laugh). {hs} heart was (heavy|as heavy as a stone).
| But (all day|wherever {h} went), {h} had to think of the {which}.
@sad
At last {h} went back and knocked at the door.
| In the evening, {h} could not bear it (anymore|any longer). {h} went back.
"I have to tell you something," said {H} (softly|in a small voice). "I broke your {which}, and I am sorry."

{E} looked at {hi} for a long time. Then {e} smiled.
| {E} was quiet for a moment. Then {e} took {hs} hand.
"A {thing} is only a {thing}," said {E}. "(But the|The) truth is worth (more|more than gold)."
| "It was brave of you to tell me," said {E}. "I am not angry."
{again}
| {H} worked in the garden for a week to pay for a new {thing}, and {h} was glad to do it.
{hs} heart was (light|as light as a feather) again.
moral: the truth is always the best way / it is brave to tell the truth
That night, {H} slept (well|very well|soundly).
| From that day on, {H} always told the truth.
@close

== plot baby: a small lost animal is taken back to its mother
baby ; mother ; where ; cry = duckling ; duck ; by the {water} ; Peep / kitten ; cat ; in the barn ; Meow /
    chick ; hen ; in the yard ; Peep / lamb ; sheep ; in the meadow ; Baa / puppy ; dog ; on the farm ; Yip
first & second = a cow / an old horse / a pig / a goat / a white rabbit / a crow
{when} {H} heard a tiny voice {bynear}. "{cry}! {cry}!"
{h} looked (behind a bush|under a leaf|in the grass) and found a little {baby}. It was (all alone|shaking with cold).
| There, (behind a bush|in the grass|under a leaf), sat a little {baby}, (all alone|wet and cold).
"(Where is|Have you lost) your mother?" asked {H}. The {baby} (began to cry|looked very sad).
| "I have lost my mother," said the {baby}.
"(Do not cry|Do not be afraid)," said {H}. "(I will take you home|We will find her)."

{H} (wrapped it in|gave it) {hs} (scarf|coat), and they set off.
First they met {first}. "Are you the mother of this {baby}?" asked {H}. "No," said {the first}, "(I am far too big|my
    children are at home)."
| First they asked {first}. "(I have seen no mother|I do not know)," said {the first}. "(Ask farther on|Try over
    there)."
Then they met {second}. "(I heard someone calling|Someone is crying) {where}," said {the second}.
| Then they asked {second}. "There is a {mother} {where} who is looking for her child," said {the second}.
So {H} (ran|hurried) as fast as {h} could.
| {H} thanked {the second} and hurried on.

And there was the {mother}, (running up and down|looking everywhere)!
| There stood the {mother}, calling and calling.
"My little one!" (cried|called) the {mother}. The {baby} (ran|jumped) to her (at once|with joy).
| The {baby} cried "{cry}!" and ran to its mother.
"Thank you{callH}," said the {mother}. "You have a (kind|good) heart."
{H} was (tired but happy|so glad that {h} sang all the way home).
| {H} waved goodbye and went home with a (warm|light) heart.
And every (Sunday|week), {h} went to see the little {baby}.
| After that, the {baby} came to visit {hi} (often|every day).
moral: nobody is too small to be a help / a kind heart always finds the way
@close

== plot learn: something that everybody can do, three tries, and patience
cast F
skill ; skilled = whistle ; whistling / juggle ; juggling / read ; reading / knit ; knitting / skip ; skipping
Everyone {h} knew could {skill}, but {H} could not.
| There was only one thing {H} could not do: {h} could not {skill}.
{when} {h} said, "I want to learn to {skill}."
| {when} {h} made up {hs} mind to learn to {skill}.

{h} tried once, and it went wrong. {h} tried again, and it went (worse|wrong again).
The others laughed, and {H} (ran away|went red).
| {H} (sat down|lay down in the grass) and was angry with {hself}.
"I will never learn it," {h} (said|thought).
| "It is too hard for me," {h} (said|thought).
(Just then|Then) {Fa} (sat down beside {hi}|came by).
"I needed a whole (year|winter) before I could {skill}," said {F}.
| "I got it wrong a hundred times before I could {skill}," said {F}.
| "Nobody can {skill} on the first day," said {F}.
"(Come|Stand up), I will show you how."
| "(Watch me|Look), I do it very slowly. Now you."

So they practised {skilled} every (morning|evening), and {F} (never laughed|was very patient).
| Day after day they practised together, although {H} often wanted to give up.
{H} tried again and again, until one day it (worked|went well).
| And one day, when {H} was not even thinking about it, it (worked|went well).
"Look! I can {skill}!" (cried|shouted) {H}.
| "I can do it!" (cried|shouted) {H}. "I can {skill}!"
"I knew it," said {F}, and (they danced for joy|{f} clapped).
| {F} was as (proud|happy) as if {f} had done it alone.
moral: you learn by trying again / nobody is born a master
@friends

== plot moon: the moon cannot be fetched, but there is a way to have it
cast F
One (clear|warm|quiet) night, {H} looked up and saw the (full|big|round) moon over {near}.
"How beautiful it is!" said {H}. "I want to have the moon."
| "I want to (touch|hold) the moon," said {H}. "Just once."

{h} climbed the highest (hill|tree), but the moon was still far away.
| {h} stood on a chair and stretched, but the moon was too high.
{h} jumped and fell on {hs} back.
| {h} called to the moon, but it did not answer.
| {h} threw a rope, but it came down again.
@sad
@meet
"I want to have the moon," said {H}, "but I cannot reach it."
{F} thought for a while. Then {f} (smiled|laughed).
| {F} did not laugh. {f} thought about it.
"Wait here," said {F}, and {f} came back with a (bowl|bucket) of water.
| "That is not so hard," said {F}, and {f} fetched a (bowl|bucket) of water.

{F} put it on the ground. "Now look," {f} said.
And there, in the water, (was|shone) the moon!
| {H} looked into the water, and there (was|shone) the moon!
{H} (carefully|gently) touched it with one finger, and it (danced|laughed) in little waves.
| {H} held it between {hs} hands and was very still.
"Now it belongs to both of us," said {H}.
| "It is the most beautiful gift of all," said {H}.
moral: far things can be near / you do not have to own a thing to love it
@friends

== plot gift: a birthday and no money: what is made by hand counts more
cast F
who ; she ; her = mother ; she ; her / grandmother ; she ; her / father ; he ; his / grandfather ; he ; his
gift ; made = necklace ; stones and shells / crown ; leaves and flowers / picture ; petals and leaves /
    lantern ; paper and sticks / basket ; grass and twigs
thing = shawl / clock / teapot / chair
{when} {H} remembered that it was the birthday of {hs} {who}.
| {when} {H} said, "Tomorrow is the birthday of my {who}, and I have no present!"
{h} (ran|went) to the market and saw a (beautiful|fine) {thing}.
But it cost ten coins, and {h} had only two.
@sad

On the way home, {h} met {Fa}.
| {Fa} was sitting by the road and saw {hs} sad face.
"I have no present for my {who}," said {H}, "and I have no money."
"Then make something," said {F}. "(It costs nothing|I will help you)."
| "You have two hands," said {F}. "You can make something yourself."
So they (collected|looked for) {made} {bynear}, and {H} worked until (late|it was dark).
In the end, it was a {gift}, (a little crooked, but full of colour|a little crooked and very beautiful).

The next morning, {H} (shyly|slowly) gave the {gift} to {hs} {who}.
"It is not as fine as the {thing} at the market," {h} said.
| "I made it myself," {h} said, and looked at the ground.
{hs} {who} looked at it, and {she} had tears of joy in {her} eyes.
"It is the (best|most beautiful) present I have ever had," {she} said.
| "You made this for me?" {she} said. "I will keep it forever."
moral: the best presents cannot be bought / what you make with love is never crooked
They invited {F}, and there was cake for everyone.
| Then they all ate cake, and {F} got the biggest piece.
@close

== plot traveller: the last bread is shared with a stranger, who comes back when it matters
cast F
food ; divide = bread ; {h} cut it in two and gave {F} the bigger half /
    cheese ; {h} cut it in two and gave {F} the bigger half /
    soup ; {h} filled two bowls and gave {F} the fuller one /
    porridge ; {h} filled two bowls and gave {F} the fuller one
It had been a hard year, and there was not much to eat.
| {h} was poor and had only a little {food} left.
{when} somebody knocked at the door.
| {when} there was a knock at the door.
Outside stood {Fa}, (thin and tired|cold and hungry).
| It was {Fa}, who had come a long way and was (tired|hungry).
"(Please|I am so hungry)," said {F}. "(Do you have|Can you give me) something to eat?"

{H} looked at the {food}. It was all {h} had.
| "It is the last I have," thought {H}.
But {divide}.
| Then {h} smiled. "(Come in|Sit down)," {h} said. "We will share it."
They (ate|sat by the fire) and told each other stories, and it was a (warm|good) evening.
In the morning, {F} said, "I will not forget (this|you)," and went on (along the road|over the hill).

Then came a long winter. {H} had nothing left at all.
| Weeks went by, and the cupboard of {H} was empty.
{h} was sitting by the cold fire when somebody knocked.
| {h} was going to bed hungry when there was a knock at the door.
It was {F}, with a (cart|sack) full of (apples|bread|corn), (nuts|cheese) and honey!
"You gave me half of what you had," said {F}. "Now I give you half of what I have."
| "You shared your {food} with me," said {F}. "Now it is my turn."
They cooked (a big supper|all evening) and (sang|laughed) until midnight.
| That was a feast! They ate until they could eat no more.
moral: what you give comes back to you / half a loaf with a friend is more than a whole one alone
@friends

== plot map: a map in a bottle, a walk with a friend, and a treasure for all
cast F
mark = an old oak / a black rock / a broken wall / a stone bridge / a hollow tree
find ; use = old bells ; They rang so sweetly that everyone came to listen. /
    golden coins ; There was enough to mend every roof in the village. /
    glass balls in all colours ; There was one for everyone they knew. /
    old books ; They were full of wonderful stories. /
    seeds with strange names ; In spring, the whole place was full of flowers.
{when} {H} found an old bottle {bynear}. There was a map in it!
| {when} {H} opened an old book, and a map fell out.
On the map there was a red cross beside {mark}.
"A treasure!" (whispered|cried) {H}.
| {hs} heart (jumped|beat faster). It had to be a treasure!

{h} (ran|hurried) to {hs} friend, {Fa}.
"Will you come with me and look for the treasure?" asked {H}. "(Of course|At once)!" said {F}.
They took a (lamp|rope) and a spade and set off.
| They packed some bread and a spade and set off.
They walked (over the hill|through the forest|along the road) for a long time, and it (began to rain|grew hot).
| The way was long, and (twice|once) they had to turn back.
"I am tired," said {H}. "(Only a little farther|We are nearly there)," said {F}.
| When {H} was tired, {F} carried the spade, and when {F} was tired, they rested.

At last they saw {the mark}. They dug on the left, and they dug on the right, but there was nothing.
"Let us try once more," said {F}.
| "Maybe someone was here before us," said {H}. "(Let us|We will) try once more."
Then the spade hit something hard. It was a (wooden|heavy|small) box, and it was full of {find}!
They carried it home and shared it with (everyone|their friends). {use}
| "What shall we do with so much?" asked {F}. "Share it with everyone," said {H}. {use}
moral: a treasure is best when it is shared / the best treasure is a friend who comes with you
@friends
"""

# ----------------------------------------------------------------------------------------------------------------
# The grammar: words
# ----------------------------------------------------------------------------------------------------------------

GIRLS = "Mia Lily Anna Rosa Nora Ella Lucy Ivy Maya Clara Zoe Hazel Poppy Willow Clover Daisy".split()
BOYS = "Tom Ben Sam Leo Max Finn Jack Oscar Hugo Noah Theo Pip Rusty Moss Bramble Toby".split()
# Names nobody has heard before, so that the network learns to carry any name through a story.
ONSETS = "B D F G K L M N P R S T V W Z Br Dr Tr St Fl Gr".split() + ["", "", ""]
VOWELS = "a e i o u".split()
GIRL_ENDS = "la na ra da mia lia sy nie ssa".split()
BOY_ENDS = "n r do ko lo bert mus x".split()

KID_ADJ = ["little", "young", "kind", "clever", "quiet", "brave", "cheerful", "curious", ""]
ANIMAL_ADJ = ["little", "little", "little", "young", "small", "shy", "brave", "clever", "kind", "curious", "cheerful"]
HEROES = ("fox bear rabbit mouse hedgehog squirrel badger otter cat dog duck frog goat lamb mole pony dragon wolf lion "
          "elephant monkey penguin").split()
FRIENDS = HEROES + "robin crow beaver turtle goose donkey".split()

# What a friend brings to a search.
GIFTS = {
    "fox": "had a good nose", "dog": "had a good nose", "bear": "had a good nose", "badger": "had a good nose",
    "hedgehog": "had a good nose", "mole": "had a good nose", "rabbit": "had long ears and quick feet",
    "mouse": "was small enough to look under everything", "frog": "knew every stone by the water",
    "squirrel": "could look down from the trees", "cat": "could see in the dark", "otter": "had sharp eyes",
    "duck": "had sharp eyes", "goose": "had sharp eyes", "robin": "could see far from the air",
    "crow": "could see far from the air", "goat": "could climb on every rock", "pony": "could run fast",
    "lamb": "had soft feet and sharp eyes", "beaver": "knew every path by the water",
    "turtle": "was slow but never missed a thing", "donkey": "knew every path around",
    "dragon": "lit up every dark corner with a little flame", "wolf": "had a good nose", "lion": "had a good nose",
    "elephant": "had a long nose that could smell everything", "monkey": "could climb everywhere",
    "penguin": "was slow but never missed a thing",
}

# (home, place nearby) for children and for animals.
KID_HOMES = [
    ("in a small house by the river", "river"), ("in a village at the foot of a hill", "hill"),
    ("on a farm near the forest", "forest"), ("in a white cottage beside the lake", "lake"),
    ("in a tall house by the sea", "sea"), ("in a little cottage near the meadow", "meadow"),
]
CASTLES = [
    ("in a castle on a hill", "hill"), ("in a castle by the sea", "sea"), ("in an old castle in the forest", "forest"),
]
ANIMAL_HOMES = [
    ("in a hollow tree by the river", "river"), ("in a warm burrow under the hill", "hill"),
    ("in a cosy den at the edge of the forest", "forest"), ("under the roots of an old oak near the lake", "lake"),
    ("in a little cave by the sea", "sea"), ("in a round little house beside the meadow", "meadow"),
]
BIG_HOMES = [
    ("in an old barn by the river", "river"), ("in a dry cave under the hill", "hill"),
    ("in a hut at the edge of the forest", "forest"), ("in a wooden house near the lake", "lake"),
    ("in a cave by the sea", "sea"), ("in a warm stable beside the meadow", "meadow"),
]
WHERE = {"hill": "on the ", "forest": "in the ", "meadow": "in the "}
WHITHER = {"hill": "up the ", "forest": "into the ", "meadow": "out into the "}
BIG = "bear goat pony dragon wolf lion elephant".split()

COLOURS = "red blue green yellow silver golden white purple".split()
TOYS = "kite ball drum bell whistle boat lantern hat scarf blanket basket ring key book umbrella button".split()

SEASONS = {
    "spring": (["mild", "bright", "windy", "rainy"], [
        "The first flowers were opening.", "Birds were singing in every tree.", "The grass was green and wet."]),
    "summer": (["warm", "sunny", "hot", "bright"], [
        "The sun was high and the bees were humming.", "The air smelled of hay.", "There was not a cloud in the sky."]),
    "autumn": (["windy", "foggy", "golden", "rainy"], [
        "Leaves were falling from the trees.", "The wind was blowing the leaves about.", "The air smelled of apples."]),
    "winter": (["cold", "snowy", "frosty", "grey"], [
        "Snow lay on the ground.", "The pond was covered with ice.", "Smoke was rising from the chimneys."]),
}

ELDERS_KID = [("Grandmother", "f"), ("Grandfather", "m"), ("the baker", "m"), ("the gardener", "f"),
              ("the miller", "m"), ("the teacher", "f")]
ELDERS_ANIMAL = [("Grandmother", "f"), ("Grandfather", "m"), ("the old owl", "f"), ("the old turtle", "m"),
                 ("the wise toad", "m"), ("the grey goose", "f")]

SUBJECT = {"f": "she", "m": "he"}
OBJECT = {"f": "her", "m": "him"}
POSSESSIVE = {"f": "her", "m": "his"}


# ----------------------------------------------------------------------------------------------------------------
# Telling a story
# ----------------------------------------------------------------------------------------------------------------

CHOICE = re.compile(r"\(([^()]*)\)")
SLOT = re.compile(r"\{(the )?(\w+)\}")


def split(text, separator):
    return [part.strip() for part in text.split(separator)]


def parse_grammar(text):
    """{name: [step]}; a step is (what, names or alternatives, ...), see Story.tell."""
    sections, steps = {}, None
    text = re.sub(r"\n {4,}", " ", text).strip().replace("\n\n==", "\n==")
    for line in text.split("\n"):
        binding, _, options = line.partition(" = ")
        word, _, rest = line.partition(" ")
        if word == "==":
            steps = sections.setdefault(split(rest, ":")[0], [])
        elif not line:
            steps.append(("paragraph",))
        elif line[0] == "|":
            steps[-1][1].append(line[1:].strip())
        elif word in ("cast", "not"):
            steps.append((word, rest.split()))
        elif word == "moral:":
            steps.append((word, split(rest, " / ")))
        elif word.endswith("%:"):
            steps.append(("perhaps", split(rest, " / "), int(word[:-2]) / 100))
        elif line[0] == "@":
            steps.append(("section", line[1:]))
        elif options:
            steps.append(("choose", split(options, " / "), binding))
        else:
            steps.append(("say", [line]))
    return sections


SECTIONS = parse_grammar(GRAMMAR)
PLOTS = [name for name in SECTIONS if name.startswith("plot ")]


def excluded(plot):
    """The kinds of animal that cannot be the hero of a plot."""
    return [kind for step in SECTIONS[plot] if step[0] == "not" for kind in step[1]]


class Character:
    """Someone in a story: how he or she is introduced, and referred to afterwards."""

    def __init__(self, kind, adjective, name, gender, intro=None):
        self.kind, self.name, self.gender = kind, name, gender
        self.noun = (adjective + " " + kind).strip()
        self.intro = intro or "a " + self.noun + (" named " + name if name else "")

    def reference(self, rng):
        return self.name or "the " + (self.noun if rng.random() < 0.6 else self.kind)


class Story:
    """A story under way: who is in it, what the slots stand for, and the sentences so far."""

    def __init__(self, rng):
        self.rng = rng
        self.paragraphs = [[]]
        self.people = {}
        self.slots = {}
        self.day_is_set = False
        self.is_kid = rng.random() < 0.4
        hero = self.new_kid(royal=0.1) if self.is_kid else self.new_animal(HEROES, named=0.6)
        self.cast("H", hero)
        homes = (CASTLES if hero.kind in ("princess", "prince") else KID_HOMES if self.is_kid
                 else BIG_HOMES if hero.kind in BIG else ANIMAL_HOMES)
        home, near = rng.choice(homes)
        season = rng.choice(list(SEASONS))
        weathers, scenes = SEASONS[season]
        toy, colour = rng.choice(TOYS), rng.choice(COLOURS)
        self.slots.update(
            home=home, near="the " + near, water=near if near in ("river", "lake", "sea") else "pond",
            bynear=WHERE.get(near, "by the ") + near, tonear=WHITHER.get(near, "to the ") + near,
            season=season, weather=rng.choice(weathers), scene=rng.choice(scenes),
            o=toy, O=colour + " " + toy, colour=colour, Hnoun=hero.noun, Hkind=hero.kind,
            Hfirst=hero.intro if hero.name or rng.random() < 0.5 else "the " + hero.noun,
            Hanswer="(I am|My name is) {H}" if hero.name else "I only came here (yesterday|last week)")

    # -- casting

    def new_name(self, gender):
        if self.rng.random() < 0.2:
            name = (self.rng.choice(ONSETS) + self.rng.choice(VOWELS)).capitalize()
            name += self.rng.choice(GIRL_ENDS if gender == "f" else BOY_ENDS)
        else:
            name = self.rng.choice(GIRLS if gender == "f" else BOYS)
        taken = [person.name for person in self.people.values()]
        return self.new_name(gender) if name in taken else name

    def new_kid(self, royal=0.0):
        gender = self.rng.choice("fm")
        kinds = ("girl", "princess") if gender == "f" else ("boy", "prince")
        return Character(kinds[self.rng.random() < royal], self.rng.choice(KID_ADJ), self.new_name(gender), gender)

    def new_animal(self, kinds, named=0.5):
        gender = self.rng.choice("fm")
        kind = self.rng.choice(self.unlike_cast(kinds))
        name = self.new_name(gender) if self.rng.random() < named else None
        return Character(kind, self.rng.choice(ANIMAL_ADJ), name, gender)

    def new_friend(self):
        if "friend" in self.slots:
            return self.new_animal([self.slots["friend"]])
        if self.is_kid and self.rng.random() < 0.4:
            return self.new_kid()
        return self.new_animal(FRIENDS)

    def new_elder(self):
        reference, gender = self.rng.choice(self.unlike_cast(ELDERS_KID if self.is_kid else ELDERS_ANIMAL))
        intro = "{hs} " + reference.lower() if reference[0].isupper() else reference
        return Character("elder", "", reference, gender, intro)

    def unlike_cast(self, options):
        """The options in which nobody's kind of animal occurs, so that no fox meets a second one."""
        kinds = {person.kind for person in self.people.values()}
        return [x for x in options if not kinds & set(re.findall(r"\w+", x if isinstance(x, str) else x[0]))]

    def cast(self, role, who):
        low = role.lower()
        self.people[role] = who
        self.slots.update({low: SUBJECT[who.gender], low + "i": OBJECT[who.gender], low + "s": POSSESSIVE[who.gender],
                           low + "self": OBJECT[who.gender] + "self", role + "a": who.intro,
                           "call" + role: ", " + who.name if who.name else ""})
        self.slots["gift"] = GIFTS.get(who.kind, "had sharp eyes")

    # -- telling

    def tell(self, section):
        for what, *args in SECTIONS[section]:
            if what == "say":
                self.say(self.rng.choice(args[0]))
            elif what == "paragraph":
                self.paragraphs.append([])
            elif what == "section":
                self.tell(args[0])
            elif what == "cast":
                self.cast(args[0][0], self.new_friend() if args[0] == ["F"] else self.new_elder())
            elif what == "choose":
                self.choose(*args)
            elif what == "perhaps" and self.rng.random() < args[1]:
                self.say(self.rng.choice(args[0]))
            elif what == "moral:" and self.rng.random() < 0.6:
                self.say(self.rng.choice(['{H} (learned|knew now|understood) that %s.',
                                          '"%s," said {H} (with a smile|softly|).']) % self.rng.choice(args[0]))

    def choose(self, options, binding):
        if " & " in binding:
            names = binding.split(" & ")
            values = self.rng.sample(self.unlike_cast(options), len(names))
        else:
            names = binding.split(" ; ")
            values = split(self.rng.choice(self.unlike_cast(options)), " ; ")
        self.slots.update(zip(names, values))

    def when(self):
        """The words that begin the day of the plot."""
        if self.day_is_set:
            return self.rng.choice(["That day,", "A little later,", "That afternoon,"])
        self.day_is_set = True
        return self.rng.choice(["One day,", "One day,", "One morning,", "One afternoon,", "One day in {season},",
                                "One {weather} day,", "One {weather} {season} day,", "One {weather} morning,",
                                "On a {weather} {season} morning,"])

    def slot(self, the, key):
        if key in self.people:
            return self.people[key].reference(self.rng)
        text = self.when() if key == "when" else self.slots[key]
        return re.sub(r"^an? ", "the ", text) if the else text

    def fill(self, text):
        """Choose among the choices, innermost first, then fill the slots, until neither is left."""
        while "(" in text or "{" in text:
            if "(" in text:
                text = CHOICE.sub(lambda m: self.rng.choice(m.group(1).split("|")), text)
            else:
                text = SLOT.sub(lambda m: self.slot(*m.groups()), text)
        return text

    def say(self, text):
        text = re.sub(r"\s+", " ", self.fill(text)).strip()
        text = re.sub(r" ([.,!?])", r"\1", text)
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
        text = re.sub(r'(^"?|[.!?] "?)([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)
        if text:
            self.paragraphs[-1].append(text)


def make_story(rng):
    """One story as text: a beginning, something about the hero, and one plot with its end."""
    story = Story(rng)
    hero = story.people["H"]
    opening = rng.choice(["open classic", "open classic", "open day", "open named" if hero.name else "open nameless"])
    story.day_is_set = opening == "open day"
    story.tell(opening)
    story.tell("nature")
    story.tell(rng.choice([plot for plot in PLOTS if hero.kind not in excluded(plot)]))
    return "\n\n".join(" ".join(sentences) for sentences in story.paragraphs if sentences)


# ----------------------------------------------------------------------------------------------------------------
# Training
# ----------------------------------------------------------------------------------------------------------------

CONTEXT = 512
BATCH = 8               # stories
BOS, EOS = "<s>", "</s>"


def train_tokenizer(seed, vocab=1024):
    """Byte-level BPE: every byte is a token, so any text can be written; merges from the stories."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    rng = random.Random("vocabulary %d" % seed)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[BOS, EOS], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((make_story(rng) for _ in range(20000)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=BOS + " $A", pair=BOS + " $A " + BOS + " $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    return tokenizer


def story_ids(tokenizer, rng, count):
    """`count` stories as lists of tokens, BOS first and EOS last."""
    eos = tokenizer.token_to_id(EOS)
    return [e.ids + [eos] for e in tokenizer.encode_batch([make_story(rng) for _ in range(count)])]


def batches(tokenizer, rng):
    """Endless batches (ids, labels) of BATCH stories each, one a row. No story comes twice. Stories of similar length
    go together; what is left is padded with EOS, which the labels leave out."""
    import torch
    pad = tokenizer.token_to_id(EOS)
    while True:
        stories = sorted(story_ids(tokenizer, rng, 16 * BATCH), key=len)
        groups = [stories[i:i + BATCH] for i in range(0, len(stories), BATCH)]
        rng.shuffle(groups)
        for group in groups:
            width = max(map(len, group))
            yield (torch.tensor([ids + [pad] * (width - len(ids)) for ids in group]),
                   torch.tensor([ids + [-100] * (width - len(ids)) for ids in group]))


def new_model(tokenizer):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=128, intermediate_size=352, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5, tie_word_embeddings=True, initializer_range=0.05, bos_token_id=tokenizer.token_to_id(BOS),
        eos_token_id=tokenizer.token_to_id(EOS), pad_token_id=None))


def new_optimizers(model, rate):
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    import torch
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.dim() != 2 or "embed" in name]
    return [torch.optim.Muon(matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)]


def train(model, tokenizer, seed, steps, state_file, peak=5e-3, warmup=50, decay=0.25):
    """The rate rises, stays, and falls to zero over the last `decay` of the steps, so the length of a run need not be
    known before the fall begins. With a state file, a run that was stopped goes on. Returns tokens and seconds."""
    import torch
    optimizers = new_optimizers(model, peak)
    state = {"step": 0, "tokens": 0, "seconds": 0.0}
    data = batches(tokenizer, random.Random("training %d" % seed))
    if state_file and os.path.exists(state_file):
        state, weights, *moments = torch.load(state_file)
        model.load_state_dict(weights)
        for optimizer, moment in zip(optimizers, moments):
            optimizer.load_state_dict(moment)
        for _ in range(state["step"]):
            next(data)
    losses, start = [], time.time() - state["seconds"]
    for step in range(state["step"], steps):
        rate = peak * min(1.0, (step + 1) / warmup, (steps - step) / (decay * steps))
        ids, labels = next(data)
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        state = {"step": step + 1, "tokens": state["tokens"] + ids.numel(), "seconds": time.time() - start}
        if (step + 1) % 50 == 0 or step + 1 == steps:
            print("step %5d  loss %.4f  %5.2f million tokens  %5.0f s" % (
                step + 1, sum(losses) / len(losses), state["tokens"] / 1e6, state["seconds"]), flush=True)
            losses = []
            if state_file:
                torch.save([state, model.state_dict()] + [o.state_dict() for o in optimizers], state_file + ".new")
                os.replace(state_file + ".new", state_file)
    return state["tokens"], state["seconds"]


# ----------------------------------------------------------------------------------------------------------------
# What was learned, and the directory
# ----------------------------------------------------------------------------------------------------------------

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 0}
PROMPTS = ["Once upon a time", "The little fox", "One day", "In the morning,"]


def held_out_loss(model, tokenizer, seed, count=500):
    """Nats a token, and their number, over whole stories that the training has not seen."""
    import torch
    total, tokens = 0.0, 0
    with torch.no_grad():
        for ids in story_ids(tokenizer, random.Random("held out %d" % seed), count):
            ids = torch.tensor([ids])
            total += model(input_ids=ids, labels=ids).loss.item() * (ids.shape[1] - 1)
            tokens += ids.shape[1] - 1
    return total / tokens, tokens


def sample(model, tokenizer, prompt, seed, **how):
    """The prompt and what the model makes of it, up to the end of the story."""
    import torch
    torch.manual_seed(seed)
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=CONTEXT,
                         pad_token_id=tokenizer.token_to_id(EOS), **how)
    return tokenizer.decode(out[0].tolist(), skip_special_tokens=True)


README = """# stories

A small language model that writes children's stories: {parameters:,} parameters, Llama architecture (4 layers of
width 128, RMSNorm, SwiGLU, RoPE, 4 query and 2 key/value heads, tied embeddings), BF16, context {context}, byte-level
BPE with {vocab} tokens. It is a plain Hugging Face directory, as `save_pretrained` writes it.

It was trained from nothing on stories that a grammar of this project generates, by

    python tools/train_stories.py --seed {seed} --steps {steps} --out examples/models/stories

which holds the grammar as well; no other text went into it. It read {stories:,} stories ({tokens:.1f} million tokens),
none of them twice, in {minutes:.0f} minutes on a part of one core of a busy x86-64 server, with Python {python},
torch {torch}, transformers {transformers}, tokenizers {tokenizers}.

Held-out loss: **{loss:.4f} nats a token** (perplexity {perplexity:.3f}) over {held} tokens of 500 new stories, each
read alone from its first token; BF16 weights, float32 arithmetic.

Good beginnings are "Once upon a time", "The little fox", "One day", "In the morning,", "A brave girl named Ada lived".
It knows nothing but its stories. Every story ends with `</s>`, before 400 tokens; later positions were never trained.
It slips: a name it has not met in training is often misspelt later on, and now and then a character or a thing is
taken for another.

## A sample

Temperature 0.8, top-p 0.95, prompt "{prompt}":

{story}

## Licence

The same as the project's: MIT-0 or public domain, at your choice. That holds for the weights, the vocabulary and the
stories alike.
"""


def save(model, tokenizer, out, facts):
    """Write the whole directory beside its place, then move it there."""
    from transformers import GenerationConfig, PreTrainedTokenizerFast
    work = out.rstrip("/") + ".new"
    shutil.rmtree(work, ignore_errors=True)
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id, eos_token_id=model.config.eos_token_id, **SAMPLING)
    model.save_pretrained(work)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=CONTEXT,
                            clean_up_tokenization_spaces=False).save_pretrained(work)
    with open(os.path.join(work, "README.md"), "w", encoding="utf-8") as file:
        file.write(README.format(**facts))
    for name in os.listdir(work):
        os.chmod(os.path.join(work, name), 0o644)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(work, out)


def main():
    parser = argparse.ArgumentParser(description="Train the story model that ships.")
    parser.add_argument("--out", help="the directory to write (replaced whole)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3200, help="of %d stories" % BATCH)
    parser.add_argument("--state", metavar="FILE", help="where to keep the state of a run that may be stopped")
    parser.add_argument("--show", type=int, metavar="N", help="only print N stories of the grammar")
    args = parser.parse_args()
    if args.show:
        rng = random.Random(args.seed)
        print("\n\n* * *\n\n".join(make_story(rng) for _ in range(args.show)))
        return
    if not args.out:
        parser.error("--out DIRECTORY or --show N is needed")

    import tokenizers
    import torch
    import transformers
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    tokenizer = train_tokenizer(args.seed)
    model = new_model(tokenizer)
    tokens, seconds = train(model, tokenizer, args.seed, args.steps, args.state)
    model = model.eval().to(torch.bfloat16)
    reader = new_model(tokenizer).eval()                # the weights as saved, computed with in float32
    reader.load_state_dict(model.state_dict())
    loss, held = held_out_loss(reader, tokenizer, args.seed)
    print("held-out loss %.4f nats a token over %d tokens" % (loss, held))
    for prompt in PROMPTS:
        print("\n--- greedy: " + sample(reader, tokenizer, prompt, 0, do_sample=False))
        print("\n--- sampled: " + sample(reader, tokenizer, prompt, 1, **SAMPLING))
    story = sample(reader, tokenizer, PROMPTS[0], 1, **SAMPLING)
    save(model, tokenizer, args.out, {
        "parameters": sum(p.numel() for p in model.parameters()), "context": CONTEXT,
        "vocab": tokenizer.get_vocab_size(), "seed": args.seed, "steps": args.steps,
        "tokens": tokens / 1e6, "stories": args.steps * BATCH, "minutes": seconds / 60,
        "python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__, "loss": loss, "perplexity": math.exp(loss), "held": held,
        "prompt": PROMPTS[0], "story": "\n".join(("> " + line).rstrip() for line in story.split("\n"))})


if __name__ == "__main__":
    main()
