/* The account at the end of the navigation: who you are, the theme, and signing in and out. */
import { useState } from "react";

import { call, getTrustsHeaders, SIGN_IN_NEEDED } from "../api/client";
import { DEFAULT_TENANT, SAMPLE_TENANT, setIdentity, useIdentity } from "../api/identity";
import type { Start } from "../api/session";
import { Button } from "../components/button";
import { Dialog } from "../components/dialog";
import { TextField } from "../components/field";
import { Menu, MenuChoice, MenuItem, MenuLine } from "../components/menu";
import { showError } from "../components/toast";
import { navigate } from "../router";
import { texts } from "../texts";
import { setTheme, useTheme } from "../theme";
import styles from "./layout.module.css";

const THEMES = [
  { value: "system", title: texts.account.themeSystem, icon: "system" },
  { value: "light", title: texts.account.themeLight, icon: "light" },
  { value: "dark", title: texts.account.themeDark, icon: "dark" },
] as const;

export function AccountMenu({ start }: { start: Start }) {
  const theme = useTheme();
  const identity = useIdentity();
  const [isChanging, setIsChanging] = useState(false);
  const isNamed = getTrustsHeaders();
  const caller = start.caller;
  const name = isNamed ? identity.user : (caller?.name ?? caller?.email ?? caller?.id ?? texts.account.anonymous);
  const tenant = isNamed ? identity.tenant : (caller?.tenant_id ?? "");
  const trigger = (
    <button type="button" className={styles.account}>
      <span className="visually-hidden">{texts.account.menu}</span>
      <span className={styles.avatar} aria-hidden="true">
        {name.slice(0, 1).toUpperCase()}
      </span>
      <span className={styles.accountText}>
        <span className={styles.accountName}>{name}</span>
        <span className={styles.accountNote}>{tenant}</span>
      </span>
    </button>
  );
  const isSample = identity.tenant === SAMPLE_TENANT;
  return (
    <>
      <Menu trigger={trigger} side="top" align="start">
        {isNamed && (
          <>
            <MenuItem icon="person" onSelect={() => setIsChanging(true)}>
              {texts.account.change}
            </MenuItem>
            <MenuItem icon="spark" onSelect={() => changeIdentity({ tenant: isSample ? DEFAULT_TENANT : SAMPLE_TENANT })}>
              {isSample ? texts.account.leaveSample : texts.account.sample}
            </MenuItem>
          </>
        )}
        {!isNamed && !caller?.id && (
          <MenuItem icon="person" onSelect={() => window.dispatchEvent(new Event(SIGN_IN_NEEDED))}>
            {texts.account.signIn}
          </MenuItem>
        )}
        {!isNamed && caller?.id && (
          <MenuItem icon="signOut" onSelect={() => void signOut()}>
            {texts.account.signOut}
          </MenuItem>
        )}
        <MenuLine />
        <MenuChoice label={texts.account.theme} value={theme} options={THEMES} onChange={setTheme} />
        <MenuLine />
        <MenuItem icon="external" onSelect={() => window.open("/docs", "_blank", "noopener")}>
          {texts.navigation.apiDocs}
        </MenuItem>
      </Menu>
      {isChanging && <IdentityDialog onClose={() => setIsChanging(false)} />}
    </>
  );
}

function changeIdentity(change: { user?: string; tenant?: string }): void {
  setIdentity(change);
  // What is open belongs to the former user.
  navigate("/chat");
}

async function signOut(): Promise<void> {
  try {
    await call("POST /api/auth/logout");
  } catch (error) {
    showError(error);
    return;
  }
  setIdentity({ credential: null });
  location.assign("/chat");
}

function IdentityDialog({ onClose }: { onClose: () => void }) {
  const identity = useIdentity();
  const [user, setUser] = useState(identity.user);
  const [tenant, setTenant] = useState(identity.tenant);
  const save = () => {
    const named = user.trim() === identity.user ? {} : { user: user.trim() };
    changeIdentity({ ...named, tenant: tenant.trim() || DEFAULT_TENANT });
    onClose();
  };
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button look="primary" type="submit" form="identity" disabled={!user.trim()}>
        {texts.common.save}
      </Button>
    </>
  );
  return (
    <Dialog isOpen onClose={onClose} title={texts.account.title} description={texts.account.description} footer={footer}>
      <form
        id="identity"
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <TextField
          label={texts.account.user}
          hint={texts.account.userHint}
          value={user}
          maxLength={320}
          onChange={(event) => setUser(event.target.value)}
        />
        <TextField
          label={texts.account.tenant}
          hint={texts.account.tenantHint}
          value={tenant}
          maxLength={100}
          onChange={(event) => setTenant(event.target.value)}
        />
      </form>
    </Dialog>
  );
}
