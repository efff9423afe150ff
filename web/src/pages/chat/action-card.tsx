/* A card of an agent: a question with buttons and inputs, in the text, in a dialog or in a drawer. */
import { useEffect, useId, useState } from "react";

import { call } from "../../api/client";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { Select, TextArea, TextField, Toggle } from "../../components/field";
import { Icon } from "../../components/icon";
import { isSafeLink, Markdown } from "../../components/markdown";
import { texts } from "../../texts";
import styles from "./action-card.module.css";
import { APPROVAL_PREFIX } from "./conversation";
import type { ActionCard, CardAction, CardInput } from "./events";
import { listParts, type ShownCard, type Submit } from "./turns";

interface Props {
  shown: ShownCard;
  /** The answer of the person, if the session has one. */
  answer: Submit | null;
  canAnswer: boolean;
  /** The text above says what the card asks. */
  isRepeated: boolean;
  onSubmit: (card: ActionCard, submit: Submit) => void;
}

type CardState = "open" | "answered" | "over";

export function CardBox({ shown, answer, canAnswer, isRepeated, onSubmit }: Props) {
  const { card } = shown;
  const isInline = card.display_style === "inline";
  const [isShown, setIsShown] = useState(shown.isNew && !isInline);
  const { state, secondsLeft, outcome } = useCardState(shown, answer, canAnswer);
  const submit = (sent: Submit) => {
    setIsShown(false);
    onSubmit(card, sent);
  };
  const isOpen = state === "open" && canAnswer;
  const form = <CardForm card={card} isEnabled={isOpen} onSubmit={submit} />;
  const isApproval = card.id.startsWith(APPROVAL_PREFIX);
  const title = isApproval ? texts.chat.card.approval : texts.chat.card.title;
  return (
    <section className={styles.card} aria-label={title} data-state={state}>
      <header className={styles.head}>
        <Icon name={isApproval ? "alert" : "question"} size={18} />
        <h3>{title}</h3>
        {state === "answered" && <Badge tone="positive">{outcome}</Badge>}
        {state === "over" && <Badge>{texts.chat.card.over}</Badge>}
        {state === "open" && secondsLeft !== null && (
          <Badge tone={secondsLeft < 10 ? "warning" : "neutral"}>{texts.chat.card.timeLeft(secondsLeft)}</Badge>
        )}
      </header>
      {!isRepeated && <Markdown text={card.prompt} />}
      {isInline && state === "open" && form}
      {!isInline && isOpen && (
        <Button look="primary" className={styles.reopen} onClick={() => setIsShown(true)}>
          {texts.chat.card.answer}
        </Button>
      )}
      {!isInline && isOpen && (
        <Dialog
          isOpen={isShown}
          onClose={() => setIsShown(false)}
          title={title}
          side={card.display_style === "sidebar" ? "right" : undefined}
        >
          <div className={styles.prompt}>
            <Markdown text={card.prompt} />
          </div>
          {form}
        </Dialog>
      )}
    </section>
  );
}

/** Whether a card can still be answered. A request for consent may have been decided elsewhere, or by a message ("yes"). */
function useCardState(
  shown: ShownCard,
  answer: Submit | null,
  canAnswer: boolean,
): { state: CardState; secondsLeft: number | null; outcome: string } {
  const { card } = shown;
  const end = card.timeout_ms === undefined ? null : shown.shownAt + card.timeout_ms;
  const [now, setNow] = useState(Date.now());
  const [decision, setDecision] = useState<string | null>(null);
  const isTicking = end !== null && now < end && !answer && !decision;
  useEffect(() => {
    if (!isTicking) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isTicking]);
  const approval = card.id.startsWith(APPROVAL_PREFIX) ? card.id.slice(APPROVAL_PREFIX.length) : null;
  useEffect(() => {
    // While an answer runs, nobody can answer the card. When it ends, it may have decided the request.
    if (!approval || !canAnswer) return;
    call("GET /api/v1/approvals/{approval}", { path: { approval } }).then(
      ({ status }) => status !== "pending" && setDecision(status),
      () => setDecision("expired"),
    );
  }, [approval, canAnswer]);
  const secondsLeft = end === null ? null : Math.max(0, Math.ceil((end - now) / 1000));
  if (answer) {
    const action = listParts(card)
      .flatMap((part) => part.actions)
      .find((each) => each.id === answer.action_id);
    return { state: "answered", secondsLeft, outcome: action?.title ?? texts.chat.card.answered };
  }
  if (decision === "approved") return { state: "answered", secondsLeft, outcome: texts.chat.card.approved };
  if (decision === "rejected") return { state: "answered", secondsLeft, outcome: texts.chat.card.rejected };
  return { state: decision || secondsLeft === 0 ? "over" : "open", secondsLeft, outcome: "" };
}

type Values = Record<string, string | boolean>;

interface FormProps {
  card: ActionCard;
  isEnabled: boolean;
  onSubmit: (submit: Submit) => void;
}

function CardForm({ card, isEnabled, onSubmit }: FormProps) {
  const inputs = listParts(card).flatMap((part) => part.inputs);
  const [values, setValues] = useState<Values>(() => Object.fromEntries(inputs.map((input) => [input.id, firstValue(input)])));
  const [missing, setMissing] = useState<readonly string[]>([]);
  const send = (action: CardAction) => {
    const empty = inputs.filter((input) => input.is_required && isEmpty(values[input.id])).map((input) => input.id);
    // A button such as Cancel needs no inputs.
    if (empty.length > 0 && action.style !== "secondary") {
      setMissing(empty);
      return;
    }
    // The fields of another part, such as arguments to edit, are not what the person answers.
    const parts = listParts(card).filter((part) => listParts(part).some((inner) => inner.actions.includes(action)));
    const ids = parts.flatMap((part) => part.inputs).map((input) => input.id);
    const given = Object.entries(values).filter(([id, value]) => ids.includes(id) && !isEmpty(value));
    onSubmit({ card_id: card.id, action_id: action.id, inputs: Object.fromEntries(given) });
  };
  return (
    <CardPart
      part={card}
      values={values}
      missing={missing}
      isEnabled={isEnabled}
      onChange={(id, value) => {
        setValues((old) => ({ ...old, [id]: value }));
        setMissing((old) => old.filter((other) => other !== id));
      }}
      onSend={send}
    />
  );
}

function firstValue(input: CardInput): string | boolean {
  if (input.type === "Input.Toggle") return input.value === true || input.value === "true";
  return typeof input.value === "string" ? input.value : "";
}

function isEmpty(value: string | boolean | undefined): boolean {
  return typeof value === "string" ? !value.trim() : value === undefined;
}

interface PartProps {
  part: ActionCard;
  values: Values;
  missing: readonly string[];
  isEnabled: boolean;
  onChange: (id: string, value: string | boolean) => void;
  onSend: (action: CardAction) => void;
}

function CardPart({ part, ...rest }: PartProps) {
  const { values, missing, isEnabled, onChange, onSend } = rest;
  const [revealed, setRevealed] = useState<string | null>(null);
  const region = useId();
  const nested = part.actions.find((action) => action.id === revealed)?.card;
  const looks = ["destructive", "primary", "positive"];
  // The first button is the main one if the card names none.
  const hasMain = part.actions.some((action) => looks.includes(action.style));
  return (
    <div className={styles.part}>
      {part.inputs.map((input) => (
        <CardField
          key={input.id}
          input={input}
          value={values[input.id] ?? ""}
          isMissing={missing.includes(input.id)}
          isEnabled={isEnabled}
          onChange={(value) => onChange(input.id, value)}
        />
      ))}
      <div className={styles.actions}>
        {part.actions.map((action, index) => {
          if (action.type === "Action.OpenUrl") return <OpenLink key={action.id} action={action} />;
          if (action.type === "Action.ShowCard") {
            const isShown = revealed === action.id;
            return (
              <Button
                key={action.id}
                look="default"
                icon={isShown ? "chevronDown" : "chevronRight"}
                aria-expanded={isShown}
                aria-controls={region}
                disabled={!isEnabled}
                onClick={() => setRevealed(isShown ? null : action.id)}
              >
                {action.title}
              </Button>
            );
          }
          const look = action.style === "default" && index === 0 && !hasMain ? "primary" : action.style;
          return (
            <Button key={action.id} look={look} disabled={!isEnabled} onClick={() => onSend(action)}>
              {action.title}
            </Button>
          );
        })}
      </div>
      <div id={region}>
        {nested && (
          <div className={styles.nested}>
            {nested.prompt && <Markdown text={nested.prompt} />}
            <CardPart part={nested} {...rest} />
          </div>
        )}
      </div>
    </div>
  );
}

function OpenLink({ action }: { action: CardAction }) {
  if (!action.url || !isSafeLink(action.url)) return null;
  return (
    <a className={styles.link} href={action.url} target="_blank" rel="noopener noreferrer">
      <Icon name="external" size={16} />
      {action.title}
    </a>
  );
}

interface FieldProps {
  input: CardInput;
  value: string | boolean;
  isMissing: boolean;
  isEnabled: boolean;
  onChange: (value: string | boolean) => void;
}

function CardField({ input, value, isMissing, isEnabled, onChange }: FieldProps) {
  const label = (input.label ?? input.id) + (input.is_required ? " *" : "");
  const error = isMissing ? texts.chat.card.required : null;
  if (input.type === "Input.Toggle") {
    return (
      <Toggle
        label={label}
        checked={value === true}
        disabled={!isEnabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
    );
  }
  const text = String(value);
  const common = {
    label,
    error,
    value: text,
    disabled: !isEnabled,
    onChange: (event: { target: { value: string } }) => onChange(event.target.value),
  };
  if (input.type === "Input.ChoiceSet") {
    const choices = (input.choices ?? []).map((choice) => ({ value: choice.value, title: choice.title }));
    const none = text === "" ? [{ value: "", title: texts.chat.card.choose }] : [];
    return <Select {...common} options={[...none, ...choices]} />;
  }
  return input.is_multiline ? (
    <TextArea {...common} placeholder={input.placeholder} rows={Math.min(12, Math.max(3, text.split("\n").length))} />
  ) : (
    <TextField {...common} placeholder={input.placeholder} />
  );
}
