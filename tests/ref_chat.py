"""Cases for the template interpreter, with what jinja2 makes of them as transformers sets it up.

    python3 tests/ref_chat.py > tests/ref/chat.json

The templates are written for this test: each line exercises constructs that published chat templates use. Needs
transformers and jinja2; their versions are recorded in the file.
"""
import json
import sys
from datetime import datetime, timezone

import jinja2
import transformers
import transformers.utils.chat_template_utils as utils

NOW = 1753617600  # noon UTC, the same day almost everywhere


class Clock(datetime):
    """The time that strftime_now sees."""
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(NOW, timezone.utc)


utils.datetime = Clock

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi <|im_end|> \n"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello 🦙"}, {"role": "user", "content": "naïve?"}]
TOOL = {"name": "f", "description": "say \"x\"\n<b>", "n": 3, "ok": True, "none": None, "list": [1, 2.5, "é"],
        "nested": {"b": 1, "a": {}}}
VARS = {"messages": MESSAGES, "tool": TOOL, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
        "words": ["pear", "Apple", "fig", "apple"], "numbers": [3, 1, 2], "text": " two  words\tand\nlines ", "yes": True,
        "no": False, "empty": "", "none_value": None, "pi": 3.14159, "big": 12345678901234567,
        "rows": [{"k": "b", "v": 2}, {"k": "a", "v": 1}, {"k": "b", "v": 3}],
        "tree": [{"name": "a", "kids": [{"name": "b", "kids": []}]}, {"name": "c", "kids": []}]}

TEMPLATES = r'''
{% for m in messages %}{{ '<|' + m['role'] + '|>' + m.content + eos_token }}{% endfor %}
{%- for m in messages -%} {{ m.role }} {%- endfor -%}
A {%+ if yes %} B {% endif +%} C {#- comment -#} D {# other #} E
{% for m in messages %}¶  {% if m.role == 'user' %}¶    {{- m.content | trim -}}¶  {% elif m.role == 'system' %}¶sys¶  {% else %}¶a¶  {% endif %}¶{% endfor %}¶end
  {% if yes %}¶  x¶  {% endif %}¶  y
{{ 'a' }}¶{{ 'b' }}¶¶{%- if yes %}¶¶z{% endif %}
{% raw %}{{ not }} {% this %}{% endraw %}|{%- raw -%}  x  {%- endraw %} y
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ 1e3 }} {{ 1_000 }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not 1 == 2 }} {{ [1, 2] < [1, 3] }} {{ 'x' != 'y' and 'z' }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, 'q'] ~ {'k': (1,)} }}
{{ 'ab' * 3 }} {{ [1] * 2 }} {{ [1] + [2, 3] }} {{ (1, 2) + (3,) }} {{ () }} {{ (1) }}
{{ "it's" }} {{ 'say "x"' }} {{ 'a\nb\t\x41\u00e9\U0001F999\\' }} {{ 'one' "two" }} {{ 'q\'q' }} {{ '\d' }}
{{ ['it\'s', 'a"b', "both'\"", 'n\n', 'é'] }} {{ {'a': none, 'b': [true, 1.0]} }}
{{ messages[0].role }} {{ messages[-1]['content'] }} {{ messages[1:]|length }} {{ messages[:-1][-1].role }} {{ messages[::-1][0].role }} {{ messages[::2]|length }}
{{ 'hello'[1:3] }} {{ 'hello'[-3:] }} {{ 'hello'[::-1] }} {{ 'naïve🦙'[2] }} {{ 'hello'[10:] }}| {{ 'naïve🦙'[2:6] }} {{ 'hello'[4:1:-2] }}
{{ tool.name }} {{ tool['name'] }} {{ tool.get('name') }} {{ tool.get('zz') }} {{ tool.get('zz', 'd') }} {{ tool.missing }}| {{ tool['missing'] is defined }}
{{ tool.items()|list|length }} {% for k, v in tool.items() %}{{ k }}={{ v }};{% endfor %} {{ tool.keys()|list }} {{ tool.values()|list|length }}
{% for k, v in tool|dictsort %}{{ k }} {% endfor %}{% for k, v in tool.nested|items %}{{ k }}{% endfor %}
{{ tool | tojson }}
{{ tool | tojson(indent=2) }}
{{ tool.nested | tojson(sort_keys=true) }} {{ tool.list | tojson(ensure_ascii=true) }} {{ tool.list|tojson(separators=(',', ':')) }} {{ [] | tojson(indent=4) }} {{ 'a/b"\\\u0001\u007f<>&' | tojson }}
{{ text | trim }}| {{ text | trim | upper }} {{ 'ABC' | lower }} {{ 'hello world-foo (bar' | title }} {{ 'hELLO wORLD' | capitalize }} {{ '  x' | trim | length }} {{ 'xxaxx' | trim('x') }}
{{ text.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a b c'.split(' ', 1) }} {{ 'a--b--c'.split('--')[-1] }} {{ 'a b c'.rsplit(' ', 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xyxhix'.strip('xy') }}|{{ '\n\n a \n'.lstrip('\n') }}|{{ '\u00a0\u3000a\u2003'.strip() }}|
{{ 'abcabc'.find('c') }} {{ 'abc'.find('z') }} {{ 'naïve'.find('v') }} {{ 'abcabc'.rfind('b') }} {{ 'aXbX'.count('X') }} {{ 'abc'.index('b') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }}
{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'.replace('-', '+', 1) }} {{ 'abc' | replace('b', 'X') }} {{ 'ab'.replace('', '.') }} {{ 'aaa' | replace('a', 'b', 2) }}
{{ 'ab'.upper() }} {{ 'AB'.lower() }} {{ 'they\'re bill\'s'.title() }} {{ 'aB cD'.swapcase() }} {{ 'ÀÉ'.lower() }} {{ 'привет'.upper() }} {{ 'x y'.capitalize() }}
{{ ', '.join(words) }} {{ words | join('-') }} {{ words | join }} {{ rows | join(',', attribute='k') }} {{ [1, none, 'x'] | join('/') }}
{{ '{} and {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=3) }} {{ '{{}}'.format() }} {{ '%s-%d' % ('a', 3) }} {{ '%05.1f|%x' % (3.14159, 255) }} {{ '%s' | format('z') }} {{ '100%%' % () }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb\n' | indent(1, blank=true) }}|{{ 'a\nb' | indent('> ') }}
{{ 'a.b.c'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'abc'.partition('x') }} {{ 'a\r\nb\nc'.splitlines() }} {{ 'x'.isdigit() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'Ab'.isupper() }} {{ 'ab'.isalpha() }} {{ 'pre-x'.removeprefix('pre-') }} {{ 'x.py'.removesuffix('.py') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.rjust(3) }}|{{ 'a'.ljust(3, '.') }}|{{ 'ab'.center(5) }}|
{{ words | first }} {{ words | last }} {{ numbers | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ numbers | sort(reverse=true) }} {{ words | unique | list }} {{ numbers | reverse | list }} {{ 'abc' | reverse }} {{ numbers | sum }} {{ numbers | max }} {{ words | min }} {{ rows | sum(attribute='v') }}
{{ rows | map(attribute='k') | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'p', 'q') | join(' ') }} {{ rows | map(attribute='zz', default=0) | list }} {{ [[1, 2]] | map('first') | list }}
{{ rows | selectattr('k', 'equalto', 'b') | list | length }} {{ rows | rejectattr('k', 'eq', 'b') | map(attribute='v') | list }} {{ messages | selectattr('role', 'in', ['user', 'system']) | list | length }} {{ rows | selectattr('zz', 'defined') | list }} {{ rows | selectattr('v') | list | length }}
{{ numbers | select('odd') | list }} {{ numbers | reject('gt', 1) | list }} {{ [0, 1, '', 'a'] | select | list }} {{ none_value | selectattr('x') | list }} {{ rows | sort(attribute='k') | map(attribute='v') | list }} {% for k, g in rows | groupby('k') %}{{ k }}:{{ g | length }} {% endfor %}{{ [1, 2, 3, 4, 5] | batch(2, 0) | list }}
{{ missing | default('d') }} {{ empty | default('d') }}| {{ empty | default('d', true) }} {{ missing | d }}| {{ none_value | default('x') }} {{ 3.7 | int }} {{ '42' | int + 1 }} {{ 'x' | int(7) }} {{ '1.5' | float }} {{ -3 | abs }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ pi | string | length }} {{ big }} {{ 1.0 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }}
{{ missing is defined }} {{ missing is undefined }} {{ none_value is none }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 'x' is string }} {{ tool is mapping }} {{ words is sequence }} {{ tool is iterable }} {{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ 1.5 is float }} {{ yes is boolean }} {{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 3 is not even }} {{ 'a' is in 'abc' }} {{ 1 is eq 1 }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ none is not none }} {{ none_value is sameas none }} {{ 3 is gt(2) }} {{ words is callable }} {{ range is callable }} {{ 'upper' is filter }}
{{ 'a' in 'abc' }} {{ 'z' not in 'abc' }} {{ 'name' in tool }} {{ 2 in numbers }} {{ 'x' in missing }} {{ not 'a' in 'abc' }} {{ '' in '' }}
{{ 'yes' if yes else 'no' }} {{ 'x' if no }}| {{ ('a' if no else 'b') if yes else 'c' }} {{ yes and no or 'z' }} {{ empty or 'e' }} {{ words and 'w' }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(n=0, found=false) %}{% for i in numbers %}{% set ns.n = ns.n + i %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }} {{ ns.found }} {{ ns.zz is defined }} {{ namespace({'a': 1}).a }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, %}{{ t }}
{% set block %}<{{ bos_token }}>{% endset %}{{ block }}{% set up | upper | trim %} abc {% endset %}{{ up }}|
{% for x in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}
{% for x in [] %}n{% else %}none{% endfor %} {% for x in numbers if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}{% for c in 'añb' %}{{ c }}.{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}|{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}
{% for t in tree recursive %}[{{ t.name }}{{ loop.depth }}{% if t.kids %}{{ loop(t.kids) }}{% endif %}]{% endfor %}
{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro m(a, b='x', c=none) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=1, a=2) }}{{ m() }}{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}inside {{ bos_token }}{% endcall %}{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each([1, 2]) %}<{{ i }}>{% endcall %}
{% filter upper %}abc {{ bos_token }}{% endfilter %} {% with a = 1, b = 2 %}{{ a + b }}{% endwith %} {{ a is defined }} {% generation %}gen{% endgeneration %}
{% set d = {'a': 1, 'b': {'c': [1, 2]}, 3: 'three'} %}{{ d.b.c[1] }} {{ d[3] }} {{ d | length }} {{ {'x': 1}.x }} {{ dict(a=1, b='z') }} {{ dict({'q': 1}, r=2).r }} {{ [[1, 2], [3]][0][1] }} {{ {'a': 1} == {'a': 1} }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now("%A, %B %d") }}
{{ '<b>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ '<a href="x">' | e }} {{ '<b>' | escape | length }} {{ 'a b/c' | urlencode }} {{ 'some words here' | truncate(9) }} {{ 'a b  c' | wordcount }}
{{ messages[2].content.split('</think>')[-1].lstrip('\n') }} {{ (messages[2].content.split('</think>') | first).split('<think>') | last | trim }} {{ '</think>' in messages[2].content }}
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set s = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{% if m.role == 'user' %}{{ '[INST] ' + (s + '\n\n' if loop.last and s is defined else '') + m.content | trim + ' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}
{{ words | tojson | safe }} {{ words[0] | attr('upper') is defined }} {{ 'x' | list }} {{ tool | list }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ [3, 1] | sort | first }} {{ (1, 2) | last }} {{ 'abc' | first }}
{{ -1 | abs }} {{ (-1) | abs }} {{ not yes }} {{ +3 }} {{ - 3 }} {{ 10 - 2 - 3 }} {{ 2 * (3 + 4) }} {{ 1 if 2 > 1 else 0 }} {{ 5 is odd and 4 is even }} {{ 1.5 + 1 }} {{ 3 * 'ab' }} {{ 1 < 2 and 2 < 1 or 'n' }}
{{ missing }}|{{ missing ~ 'x' }}|{{ missing == none }}|{{ missing == missing2 }}|{{ missing | length }}|{{ missing or 'or' }}|{% for x in missing %}y{% endfor %}{% if missing %}t{% else %}f{% endif %}|{{ tool.a is defined and tool.a.b }}
{{ raise_exception('no ' + 'way') }}
{{ missing.attribute }}
{{ missing + 'x' }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ words.append('x') }}
{{ 1 < 'a' }}
{{ missing() }}
{{ [1, 2](1) }}
{% for %}{% endfor %}
{% if yes %}never closed
{{ 'open }}
{{ (1, }}
{% endfor %}
{{ 1 | nofilter }}
{{ 1 is notest }}
{% set words.x = 1 %}
{% break %}
{{ none_value | length }}
{% for a, b in [[1]] %}{% endfor %}
{{ range('x') }}
{% unknown %}
{{ '{' }}{{ '}}' }}{{ "%}" }}{{ {'a': {'b': 1}}['a']['b'] }}{{ [{'a': 1}][0].a }}
{{- '' -}} x {{- 'y' }} {# {{ c }} #}{#- d -#} e
{% if not (messages | length == 4 and messages[0].role in ['system', 'developer']) %}a{% elif messages | map(attribute='role') | list == ['system', 'user', 'assistant', 'user'] %}b{% endif %}
{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% set i = messages | length - 1 - loop.index0 %}{% if ns.last < 0 and m.role == 'user' %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}
{{ '%s' % none }} {{ '%r' % 'a' }} {{ '%d%%' % 5 }} {{ '%3d|%-3d|' % (5, 6) }} {{ [1,2,3]|join(',')|replace(',', ';') }} {{ '  a  b '|trim|replace(' ', '') }} {{ ('a', 'b')|join }} {{ 'A' ~ ('b'|upper) ~ 1 }}
'''


def cases():
    for line in TEMPLATES.strip("\n").split("\n"):
        template = line.replace("¶", "\n")
        case = {"template": template}
        try:
            case["text"] = utils._compile_jinja_template(template).render(**json.loads(json.dumps(VARS)))
        except Exception as e:  # noqa: BLE001 - any refusal of the reference is one
            case["error"] = type(e).__name__
        yield case


# Formats in the style of published ones, in words of their own: (known: the converter can make data of it, template).
FORMATS = [
    (True, "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    (True, "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n"
           "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
           "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"),
    (True, "{% if messages[0].role == 'system' %}{% set sys = '<<S>>\n' + messages[0].content + '\n<</S>>\n\n' %}"
           "{% set rest = messages[1:] %}{% else %}{% set sys = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
           "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate!') }}{% endif %}"
           "{% if m.role == 'user' %}{{ bos_token + '[I] ' + (sys if loop.first else '') + m.content.strip() + ' [/I]' }}"
           "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"),
    (True, "{{ bos_token }}{%- if messages[0].role == 'system' %}{% set sys = messages[0].content | trim %}"
           "{% set messages = messages[1:] %}{% else %}{% set sys = '' %}{% endif %}<|h|>system<|/h|>\n\n"
           "Today is {{ strftime_now('%d %b %Y') }}.\n\n{{ sys }}<|eot|>{% for m in messages %}"
           "{{- '<|h|>' + m.role + '<|/h|>\n\n' + m.content | trim + '<|eot|>' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\n\n' }}{% endif %}"),
    (True, "{{ bos_token }}{% if messages[0].role == 'system' %}{% set p = messages[0].content + '\n\n' %}"
           "{% set l = messages[1:] %}{% else %}{% set p = '' %}{% set l = messages %}{% endif %}{% for m in l %}"
           "{% set role = 'model' if m.role == 'assistant' else m.role %}{{ '<turn>' + role + '\n' + (p if loop.first else '') }}"
           "{{ m.content | trim }}{{ '</turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}"),
    (True, "{%- if messages[0]['role'] == 'system' %}{%- set s = messages[0]['content'] %}{%- set l = messages[1:] %}"
           "{%- else %}{%- set l = messages %}{%- endif %}{{ bos_token }}{%- for m in l %}{%- if m.role == 'user' %}"
           "{%- if loop.last and s is defined %}{{ '[I]' + s + '\n\n' + m.content + '[/I]' }}{%- else %}"
           "{{ '[I]' + m.content + '[/I]' }}{%- endif %}{%- else %}{{ ' ' + m.content | trim + eos_token }}{%- endif %}{%- endfor %}"),
    (True, "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"),
    (True, "{% for m in messages %}¶{% if m['role'] == 'user' %}¶{{ '<|user|>¶' + m['content'] + eos_token }}¶"
           "{% elif m['role'] == 'system' %}¶{{ '<|system|>¶' + m['content'] + eos_token }}¶{% elif m['role'] == 'assistant' %}¶"
           "{{ '<|assistant|>¶'  + m['content'] + eos_token }}¶{% endif %}¶{% if loop.last and add_generation_prompt %}¶"
           "{{ '<|assistant|>' }}¶{% endif %}¶{% endfor %}"),
    (True, "{{ bos_token }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
           "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}{% set c = m.content %}"
           "{% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}<A>{{ c + eos_token }}{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}<A><think>\n{% endif %}"),
    (True, "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
           "{% endfor %}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.index0 < ns.last %}"
           "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}</{{ m.role }}>{% endfor %}"
           "{% if add_generation_prompt %}<assistant>{% endif %}"),
    (False, "{% for m in messages %}{{ loop.index }} {{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}{{ messages | length }} assistant:{% endif %}"),
    (False, "{% for m in messages %}[{{ m.content | upper }}]{% endfor %}"),
]
TEXTS = ["Hi", " Hi <|im_end|>\n", "<think>\nhm\n</think>\n\nHello 🦙", "[I]{{ x }}", "two\n\nlines", "", "\u3000wide "]


def formats():
    for known, template in FORMATS:
        template = template.replace("¶", "\n")
        compiled = utils._compile_jinja_template(template)
        talks = []
        for k in range(16):
            roles = (["system"] if k & 1 else []) + ["user", "assistant"] * 3
            roles = roles[:1 + k // 2 % 4 + (k & 1)]
            talk = {"prompt": k % 3 != 0,
                    "messages": [{"role": r, "content": TEXTS[(3 * k + 5 * i) % len(TEXTS)]} for i, r in enumerate(roles)]}
            try:
                talk["text"] = compiled.render(messages=talk["messages"], tools=None, documents=None, bos_token="<s>",
                                               eos_token="</s>", add_generation_prompt=talk["prompt"])
            except jinja2.exceptions.TemplateError as e:
                talk["error"] = str(e)
            talks.append(talk)
        yield {"known": known, "template": template, "variables": {"bos_token": "<s>", "eos_token": "</s>"}, "talks": talks}


def main():
    if sys.argv[1:] == ["--cli"]:
        for c in cases():
            print(json.dumps(dict(c, vars=VARS, now=NOW)))
        return
    print(json.dumps({"made_by": "jinja2 %s, transformers %s" % (jinja2.__version__, transformers.__version__), "now": NOW,
                      "date": Clock.now().strftime("%d %b %Y"), "vars": VARS, "cases": list(cases()), "formats": list(formats())}, ensure_ascii=False, indent=0))


main()
