/* Sign in, where the server wants to know who you are. */
import { useState } from "react";

import { call } from "../api/client";
import { setIdentity } from "../api/identity";
import { fetchCaller, type Start } from "../api/session";
import { Button } from "../components/button";
import { TextField } from "../components/field";
import { showError } from "../components/toast";
import { Logo } from "../layout/logo";
import { useTitle } from "../layout/page-frame";
import { texts } from "../texts";
import styles from "./sign-in-page.module.css";

interface Props {
  start: Start;
  onSignedIn: () => void;
}

export function SignInPage({ start, onSignedIn }: Props) {
  useTitle(texts.account.signIn);
  const [key, setKey] = useState("");
  const [error, setError] = useState<string | null>(null);
  const { logins } = start;
  const useCredential = async (credential: string) => {
    setIdentity({ credential });
    const caller = await fetchCaller().catch((problem: unknown) => {
      showError(problem);
      return undefined;
    });
    if (caller === undefined) return;
    if (caller?.id) {
      onSignedIn();
      return;
    }
    setIdentity({ credential: null });
    setError(texts.signIn.wrongKey);
  };
  const becomeTestUser = () =>
    call("GET /api/dev/token").then(
      (token) => useCredential(token.token),
      (problem: unknown) => showError(problem),
    );
  const next = encodeURIComponent(location.pathname + location.search);
  return (
    <main className={styles.page}>
      <section className={styles.box}>
        <Logo size={44} />
        <h1>{texts.signIn.title}</h1>
        <p className={styles.text}>{texts.signIn.text}</p>
        {logins.providers.map((provider) => (
          <a key={provider} className={styles.provider} href={`${logins.login_urls[provider]}?next=${next}`}>
            {texts.signIn.with(texts.signIn.providers[provider] ?? provider)}
          </a>
        ))}
        {logins.providers.length > 0 && <p className={styles.or}>{texts.signIn.or}</p>}
        <form
          className={styles.form}
          onSubmit={(event) => {
            event.preventDefault();
            void useCredential(key.trim());
          }}
        >
          <TextField
            label={texts.signIn.key}
            hint={texts.signIn.keyHint}
            error={error}
            type="password"
            autoComplete="off"
            value={key}
            onChange={(event) => {
              setKey(event.target.value);
              setError(null);
            }}
          />
          <Button type="submit" look={logins.providers.length ? "default" : "primary"} disabled={!key.trim()}>
            {texts.signIn.useKey}
          </Button>
        </form>
        {logins.has_dev_token && (
          <div className={styles.form}>
            <Button onClick={() => void becomeTestUser()}>{texts.signIn.dev}</Button>
            <p className={styles.hint}>{texts.signIn.devHint}</p>
          </div>
        )}
        {logins.allows_anonymous && (
          <Button look="quiet" onClick={onSignedIn}>
            {texts.signIn.anonymous}
          </Button>
        )}
      </section>
    </main>
  );
}
